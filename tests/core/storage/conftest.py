"""Where small files lie in a store."""

from __future__ import annotations

import pytest

from lakeward.storage.small_files import SmallFiles


@pytest.fixture
def s3_files(s3_root: str) -> SmallFiles:
    return SmallFiles(s3_root)
