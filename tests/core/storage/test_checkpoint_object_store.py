"""A real S3 server that throttles, fails in the last step, or loses an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.fs as pafs
import pytest

from lakeward.errors import StorageError
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import (
    SECOND,
    SERVICE,
    reference,
    round_snapshot,
    subtask_snapshot,
    write_checkpoint,
    write_parts,
)
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from typing import Any

REF = reference()
MANY_PARTS_MIB = 21


def knows_one_put() -> bool:
    try:
        pafs.FileSystem.from_uri("s3://a:b@bucket/x?region=us-east-1&allow_delayed_open=true")
    except ValueError:
        return False
    return True


@pytest.fixture
def store(s3_files: SmallFiles) -> CheckpointFiles:
    return CheckpointFiles(s3_files, FakeClock())


@pytest.mark.skipif(not knows_one_put(), reason="this pyarrow uploads small files in three requests, also atomically")
def test_a_small_file_is_one_put(store: CheckpointFiles, s3: Any) -> None:  # noqa: ANN401 - the fixture's server
    store.write_part(REF, subtask_snapshot())

    assert [method for method, _ in s3.requests] == ["PUT"]
    assert "?" not in s3.requests[0][1]


@pytest.mark.parametrize("times", [1, 2])
def test_a_store_that_throttles_now_and_then_is_only_slow(store: CheckpointFiles, s3: Any, times: int) -> None:  # noqa: ANN401 - as above
    left = {"PUT": times, "GET": times}

    def spoil(method: str, _path: str) -> str | None:
        left[method] = left.get(method, 0) - 1
        return "refuse" if left[method] >= 0 else None

    s3.spoil = spoil

    write_checkpoint(store, REF)

    assert store.load(REF).ref == REF
    assert all(count < 0 for count in left.values())


@pytest.mark.slow
def test_a_store_that_throttles_in_the_last_step_completes_nothing(store: CheckpointFiles, s3: Any) -> None:  # noqa: ANN401 - as above
    parts = write_parts(store, REF)
    s3.spoil = lambda method, path: "refuse" if method == "PUT" and "_metadata" in path else None
    with pytest.raises(StorageError, match="chk-1/_metadata: cannot be written"):
        store.complete(REF, round_snapshot(REF), parts, None)
    assert store.newest(SERVICE, 7) is None

    s3.spoil = lambda _method, _path: None
    store.complete(REF, round_snapshot(REF), parts, None)

    assert store.load(REF).ref == REF


@pytest.mark.slow
def test_an_answer_that_is_lost_is_looked_up(store: CheckpointFiles, s3: Any) -> None:  # noqa: ANN401 - as above
    parts = write_parts(store, REF)
    last = {"PUT": "_metadata", "POST": "_metadata?uploadId"}  # one request, or the last of three
    s3.spoil = lambda method, path: "lose" if "partNumber" not in path and last.get(method, "never") in path else None

    store.complete(REF, round_snapshot(REF), parts, None)

    assert store.load(REF).ref == REF


@pytest.mark.slow
def test_a_large_file_whose_last_step_fails_never_appears(s3_files: SmallFiles, s3: Any) -> None:  # noqa: ANN401 - as above
    """An upload of several requests: all of its pieces are there, and it is not put together."""
    large = b"x" * (MANY_PARTS_MIB << 20)
    s3.spoil = lambda method, path: "refuse" if method == "POST" and "uploadId" in path else None
    with pytest.raises(StorageError, match="svc/large: cannot be written"):
        s3_files.write("svc/large", large)
    assert s3_files.read("svc/large") is None

    s3.spoil = lambda _method, _path: None
    s3_files.write("svc/large", large)

    assert s3_files.read("svc/large") == large


@pytest.mark.slow
def test_a_large_file_of_which_a_piece_is_lost_never_appears(s3_files: SmallFiles, s3: Any) -> None:  # noqa: ANN401 - as above
    s3.spoil = lambda method, path: "refuse" if method == "PUT" and "partNumber=2" in path else None

    with pytest.raises(StorageError):
        s3_files.write("svc/large", b"x" * (MANY_PARTS_MIB << 20))

    assert s3_files.read("svc/large") is None


@pytest.mark.slow
def test_a_store_that_cannot_list_sweeps_nothing(store: CheckpointFiles, s3: Any) -> None:  # noqa: ANN401 - as above
    write_parts(store, REF)
    s3.spoil = lambda method, path: "refuse" if method == "GET" and "list-type" in path else None
    with pytest.raises(StorageError, match="cannot be listed"):
        store.sweep(SECOND, ())

    s3.spoil = lambda _method, _path: None

    assert store.sweep(SECOND, ()) == (REF,)


def test_a_password_in_the_root_is_not_told() -> None:
    with pytest.raises(StorageError) as caught:
        SmallFiles("s3://someone:password@bucket/x?colour=blue")
    assert "password" not in str(caught.value)
    assert "********@bucket" in str(caught.value)
