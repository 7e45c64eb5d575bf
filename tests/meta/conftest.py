"""The checkout that these tests look at."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def tracked(root: Path) -> list[Path]:
    """Return all files that git tracks and that are there."""
    words = ["git", "-C", str(root), "ls-files", "-z"]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        pytest.skip(f"not a git checkout: {done.stderr.strip()}")
    return [root / name for name in done.stdout.split("\0") if name and (root / name).is_file()]
