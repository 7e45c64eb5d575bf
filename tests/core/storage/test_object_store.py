"""A real S3 server: how it is reached, and what is said where it cannot be."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.errors import StorageError
from lakeward.model.object_store import address_of
from lakeward.storage.object_store import reason
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE_S = 45.0
"""Three tries of a request that gets no answer, on a machine with much else to do."""
LOOKS: list[Callable[[SmallFiles], object]] = [
    lambda files: files.entries("svc"),
    lambda files: files.folders("svc"),
    lambda files: files.read("svc/x"),
    lambda files: files.write("svc/x", b"x"),
]


def test_options_say_how_the_store_is_reached(s3: Any) -> None:  # noqa: ANN401 - the fixture's server
    files = SmallFiles(address_of(f"s3://{s3.new_bucket()}/state", s3.options))

    files.write("svc/x", b"1")

    assert files.read("svc/x") == b"1"


def test_the_environment_says_it_where_options_do_not(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401 - as above
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{s3.endpoint}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "password")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    files = SmallFiles(f"s3://{s3.new_bucket()}/state")

    files.write("svc/x", b"1")

    assert files.read("svc/x") == b"1"


def test_a_secret_of_any_characters_reaches_the_store_whole() -> None:
    secret = "a/b+c=d&e?f@g:h%20 i"  # noqa: S105 - nobody's

    with pytest.raises(StorageError, match="unknown option 'colour'") as caught:
        SmallFiles(address_of("s3://bucket/x", {"secret_key": secret, "colour": "blue"}))

    assert "a/b" not in str(caught.value)
    assert "a%2Fb" not in str(caught.value)


@pytest.mark.parametrize("look", LOOKS, ids=["entries", "folders", "read", "write"])
def test_a_bucket_that_is_not_there_is_named(s3: Any, look: Callable[[SmallFiles], object]) -> None:  # noqa: ANN401 - as above
    files = SmallFiles(address_of("s3://nowhere/state", s3.options))

    with pytest.raises(StorageError, match=r"nowhere/state.*there is no such bucket"):
        look(files)


@pytest.mark.parametrize("look", LOOKS, ids=["entries", "folders", "read", "write"])
def test_wrong_credentials_are_called_so(s3: Any, look: Callable[[SmallFiles], object]) -> None:  # noqa: ANN401 - as above
    files = SmallFiles(s3.new_root())
    s3.spoil = lambda _method, _path: "forbid"

    with pytest.raises(
        StorageError, match=r"state.*the store (does not know the access key|refuses these credentials)"
    ):
        look(files)


@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS, ids=["entries", "folders", "read", "write"])
def test_a_store_that_does_not_listen_is_given_up_soon(look: Callable[[SmallFiles], object]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    files = SmallFiles(f"s3://a:b@bucket/state?scheme=http&endpoint_override=127.0.0.1:{port}")
    began = time.monotonic()

    with pytest.raises(StorageError, match="the store cannot be reached"):
        look(files)

    assert time.monotonic() - began < AT_ONCE_S


@pytest.mark.slow
def test_a_store_that_never_answers_is_given_up_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        files = SmallFiles(f"s3://a:b@bucket/state?scheme=http&endpoint_override=127.0.0.1:{port}")
        began = time.monotonic()

        with pytest.raises(StorageError, match="the store cannot be reached"):
            files.entries("svc")

    assert time.monotonic() - began < AT_ONCE_S


def test_a_credential_that_is_set_but_empty_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "something")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    refused = OSError("AWS Error ACCESS_DENIED during GetObject operation")
    assert reason(refused, "s3://b/k").endswith("operation); AWS_SECRET_ACCESS_KEY is set, but empty")
    assert reason(OSError("No space left on device"), "s3://b/k") == "No space left on device"
