"""Puts the kit of these tests on the path, and starts an S3 server for those that ask for one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("kit")))

from lakeward_service_kit.s3_fixtures import s3, s3_root, s3_server

__all__ = ["s3", "s3_root", "s3_server"]


@pytest.fixture(params=["directory", "object store"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Name an empty state root, of either kind: what is kept there reads the same."""
    if request.param == "directory":
        return str(tmp_path / "root")
    return str(request.getfixturevalue("s3_root"))
