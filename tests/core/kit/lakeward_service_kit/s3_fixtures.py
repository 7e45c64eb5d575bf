"""Fixtures for tests that need an object store: a server in this process, which is started for the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_service_kit.s3_server import S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    from lakeward_service_kit.s3_server import S3Server  # noqa: PLC0415 - moto takes seconds to import

    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[S3Server]:
    """Give the server, answering everything; what a test spoils is mended after it."""
    s3_server.requests.clear()
    yield s3_server
    s3_server.spoil = lambda _method, _path: None


@pytest.fixture
def s3_root(s3: S3Server) -> str:
    """Name an empty folder of an empty bucket."""
    root = s3.new_root()
    s3.requests.clear()
    return root
