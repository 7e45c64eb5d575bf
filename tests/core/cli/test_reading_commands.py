"""Commands that read create nothing, on a fresh machine and beside a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Lakeward = Callable[..., Any]
READING = [
    ("tables",),
    ("tables", "--buckets"),
    ("leases", "list", "--buckets"),
    ("checkpoints", "list"),
    ("config", "show"),
    ("config", "check"),
    ("doctor", "--no-spark"),
    ("plugins",),
    ("embedded", "list"),
]


def tree(root: Path) -> set[str]:
    """Return every file and directory; what Python compiles is no matter."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if "__pycache__" not in path.parts}


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_command_that_reads_creates_nothing_on_a_fresh_machine(
    configured: Lakeward, tmp_path: Path, words: tuple[str, ...]
) -> None:
    before = tree(tmp_path)
    configured(*words)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_command_that_reads_creates_nothing_beside_a_store(
    flights: Lakeward, tmp_path: Path, words: tuple[str, ...]
) -> None:
    before = tree(tmp_path)
    assert flights(*words).code == 0
    assert tree(tmp_path) == before


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_command_that_reads_creates_nothing_at_a_wrong_path(
    flights: Lakeward, tmp_path: Path, words: tuple[str, ...]
) -> None:
    before = tree(tmp_path)
    flights(*words, "--set", "checkpoint.root=no/such/state", "--set", "source.path=no/such/store")
    assert tree(tmp_path) == before


def test_config_check_writes_only_where_it_is_told_to(flights: Lakeward, tmp_path: Path) -> None:
    looked = flights("config", "check").out
    assert "lakeward-state is not there yet and can be made" in looked
    written = flights("config", "check", "--write").out
    assert "a file was written and deleted" in written
    assert (tmp_path / "lakeward-state").is_dir()


def test_config_check_says_what_is_in_the_way_of_the_state(flights: Lakeward) -> None:
    said = flights("config", "check", "--set", "checkpoint.root=flights.csv/state")
    assert said.code == 1
    assert "is a file" in said.out
