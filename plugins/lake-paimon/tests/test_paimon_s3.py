"""The Paimon lake in an S3 store (moto's server): the contract of lakes, the fence, and stores that cannot fence."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from lakeward.errors import ConfigError, FencedError, LakeError, OutcomeUnknownError, StorageError
from lakeward.model.results import CommitOutcome
from lakeward_lake_paimon.conditional_put import Answer, ConditionalPut, Keys
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.s3_storage import S3Storage
from lakeward_paimon_kit.shapes import ShapedPlugin
from lakeward_paimon_kit.store import KEYS, new_bucket, running_store
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_conformance import LakeConformance
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)
from lakeward_testing.lake_upkeep import LakeUpkeepConformance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakeward.model.tables import TablePath, TableSpec
    from lakeward_lake_paimon.plugin import PaimonLakePlugin
    from lakeward_paimon_kit.reader import PythonReader

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An S3 server."""
    with running_store() as address:
        yield address


@pytest.fixture
def options(endpoint: str) -> PaimonOptions:
    """A warehouse in a bucket of its own."""
    return PaimonOptions(warehouse=f"s3://{new_bucket(endpoint)}/paimon", properties={"s3.endpoint": endpoint, **KEYS})


@pytest.fixture
def read_table(python_reader: PythonReader, options: PaimonOptions) -> Callable[[TablePath], pa.Table]:
    """All live rows, by pypaimon."""
    told = {
        "s3.endpoint": options.properties["s3.endpoint"],
        "s3.access-key": options.properties["s3.access-key"],
        "s3.secret-key": options.properties["s3.secret-key"],
        "s3.region": "us-east-1",
    }
    return lambda path: python_reader.rows(options.warehouse, str(path), told)


class TestPaimonLakeInS3(LakeConformance):
    __test__ = True

    # A store has no renames: a table of an earlier id is refused, and a person moves it.
    test_an_overtaken_start_sets_no_table_aside_that_its_successor_stamped = None  # type: ignore[assignment]
    test_a_table_that_was_dropped_and_made_anew_starts_empty = None  # type: ignore[assignment]

    # Writers do the same whatever the store, and this takes minutes there.
    test_interruptions_anywhere_leave_the_table_as_it_is_without_them = None

    @pytest.fixture
    def plugin(self) -> ShapedPlugin:
        return ShapedPlugin(properties={"paimon.changelog-producer": "none"})

    @pytest.fixture
    def roll_back(self, options: PaimonOptions) -> Callable[[TablePath, int], None]:
        def move(path: TablePath, snapshot_id: int) -> None:
            storage = S3Storage(options.warehouse, options.properties)
            folder = f"{options.warehouse}/{path.database}.db/{path.table}/snapshot"
            for name in storage.names(folder):
                if name.startswith("snapshot-") and int(name.partition("-")[2]) > snapshot_id:
                    storage.delete(f"{folder}/{name}")

        return move


class TestPaimonUpkeepInS3(LakeUpkeepConformance):
    __test__ = True

    # A store has no renames: a table of an earlier id is refused, and a person moves it.
    test_upkeep_of_a_table_that_was_made_anew_is_fenced = None  # type: ignore[assignment]
    # Which rows win, and what is expired, is decided before the store is asked; these take minutes there.
    test_changes_of_keys_leave_the_rows_of_a_model_whatever_is_merged_when = None
    test_expiry_after_upkeep_keeps_every_row = None  # type: ignore[assignment]
    # The put is the same as that of a round, whose races are tried above.
    test_a_round_and_upkeep_that_commit_at_once_lose_no_row = None  # type: ignore[assignment]

    @pytest.fixture
    def upkept(self) -> TableSpec:
        return key_table(properties={"paimon.num-sorted-run.compaction-trigger": "2"})


def begin(plugin: PaimonLakePlugin, options: PaimonOptions, start: int = 1000, table_id: int = 7) -> TieringRound:
    """Start a round, and write a row."""
    tiering = TieringRound(plugin, plugin.open(options, FakeClock()), log_table(table_id=table_id), incarnation(start))
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": start}])])
    return tiering


def test_a_stale_start_that_wakes_up_between_its_check_and_its_put_lands_nothing(
    plugin: PaimonLakePlugin,
    options: PaimonOptions,
    monkeypatch: pytest.MonkeyPatch,
    read_table: Callable[..., pa.Table],
) -> None:
    stale = begin(plugin, options)
    put = ConditionalPut.put_new

    def paused(*arguments: Any) -> Answer:  # noqa: ANN401 - as the method
        monkeypatch.setattr(ConditionalPut, "put_new", put)
        live = begin(plugin, options, 2000)
        assert live.lake.commit(live.request()) is CommitOutcome.LANDED
        return put(*arguments)

    monkeypatch.setattr(ConditionalPut, "put_new", paused)
    assert stale.lake.commit(stale.request()) is CommitOutcome.CONFLICT
    with pytest.raises(FencedError):
        stale.lake.commit(stale.request())
    assert read_table(PATH)["id"].to_pylist() == [2000]


@pytest.mark.parametrize("arrived", [True, False])
def test_an_answer_that_is_lost_is_looked_up(
    plugin: PaimonLakePlugin, options: PaimonOptions, monkeypatch: pytest.MonkeyPatch, *, arrived: bool
) -> None:
    tiering = begin(plugin, options)
    put = ConditionalPut.put_new

    def lost(*arguments: Any) -> Answer:  # noqa: ANN401 - as the method
        if arrived:
            put(*arguments)
        message = "connection reset"
        raise OSError(message)

    monkeypatch.setattr(ConditionalPut, "put_new", lost)
    if arrived:
        assert tiering.lake.commit(tiering.request()) is CommitOutcome.LANDED
    else:
        with pytest.raises(OutcomeUnknownError, match="connection reset"):
            tiering.lake.commit(tiering.request())
    assert (tiering.lake.find(PATH, tiering.round_id, 0) is not None) == arrived


def test_a_put_that_somebody_sends_twice_counts_as_landed(
    plugin: PaimonLakePlugin, options: PaimonOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiering = begin(plugin, options)
    put = ConditionalPut.put_new

    def twice(*arguments: Any) -> Answer:  # noqa: ANN401 - as the method
        put(*arguments)
        return put(*arguments)

    monkeypatch.setattr(ConditionalPut, "put_new", twice)
    assert tiering.lake.commit(tiering.request()) is CommitOutcome.LANDED


def test_a_store_that_ignores_the_condition_is_refused(
    plugin: PaimonLakePlugin, options: PaimonOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ignored(_: ConditionalPut, bucket: str, key: str, data: bytes) -> Answer:
        S3Storage(options.warehouse, options.properties).write(f"s3://{bucket}/{key}", data)
        return Answer("created")

    monkeypatch.setattr(ConditionalPut, "put_new", ignored)
    with pytest.raises(ConfigError, match="If-None-Match"):
        plugin.open(options, FakeClock())
    assert S3Storage(options.warehouse, options.properties).list(options.warehouse) == ()


def test_a_store_without_keys_and_one_that_refuses_are_said(
    plugin: PaimonLakePlugin, options: PaimonOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"s3\.access-key"):
        plugin.open(PaimonOptions(warehouse=options.warehouse), FakeClock())
    gone = PaimonOptions(warehouse="s3://no-such-bucket/lake", properties=options.properties)
    with pytest.raises(StorageError, match="NoSuchBucket"):
        plugin.open(gone, FakeClock())


def test_a_table_of_an_earlier_id_is_left_where_it_is(plugin: PaimonLakePlugin, options: PaimonOptions) -> None:
    old = begin(plugin, options)
    assert old.lake.commit(old.request()) is CommitOutcome.LANDED
    with pytest.raises(LakeError, match="a store cannot rename it"):
        begin(plugin, options, 2000, table_id=8)


@pytest.mark.parametrize("token", ["", "a token"])
@pytest.mark.parametrize("key", ["db.db/t/snapshot/snapshot-1", "p=a b/%C3%BC+=&?ü/x~-_.y"])
def test_a_request_is_signed_as_amazons_own_library_signs_it(key: str, token: str) -> None:
    """Moto asks for no signature."""
    auth, request_of, known = (pytest.importorskip(f"botocore.{one}") for one in ("auth", "awsrequest", "credentials"))
    credentials = known.Credentials("someone", "password", token or None)
    ours = ConditionalPut("http://store.example:9000", "eu-central-1", Keys("someone", "password", token))
    path = f"/bucket/{quote(key, safe='/-_.~')}"
    request = request_of.AWSRequest("PUT", f"http://store.example:9000{path}", data=b"some bytes")
    auth.S3SigV4Auth(credentials, "s3", "eu-central-1").add_auth(request)
    now = time.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ")
    assert ours._signed(path, b"some bytes", now)["Authorization"] == request.headers["Authorization"]


def test_no_secret_is_shown(options: PaimonOptions, tmp_path: Path) -> None:
    del tmp_path
    assert "password" not in repr(options)
