"""Where small files lie: a directory of this machine, and a real S3 server (moto's)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def s3_files(s3_root: str) -> SmallFiles:
    return SmallFiles(s3_root)


@pytest.fixture(params=["directory", "object store"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Name an empty root, of either kind: what is stored there reads the same."""
    if request.param == "directory":
        return str(tmp_path / "root")
    return str(request.getfixturevalue("s3_root"))
