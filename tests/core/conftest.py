"""Puts the kit of these tests on the path, and starts an S3 server for those that ask for one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).with_name("kit")))

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


@pytest.fixture(params=["directory", "object store"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Name an empty state root, of either kind: what is kept there reads the same."""
    if request.param == "directory":
        return str(tmp_path / "root")
    return str(request.getfixturevalue("s3_root"))
