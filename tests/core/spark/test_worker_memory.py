"""How the workers allocate: what Arrow and the system keep is more than they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.model.settings import SparkSettings
from lakeward.spark.session import spark_options

if TYPE_CHECKING:
    from pathlib import Path

KEY = "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL"
ARENAS = "spark.executorEnv.MALLOC_ARENA_MAX"


@pytest.mark.parametrize(
    ("environment", "conf", "expected"),
    [
        ("", {}, "system"),
        ("jemalloc", {}, "jemalloc"),
        ("", {KEY: "mimalloc"}, "mimalloc"),
        ("jemalloc", {KEY: "mimalloc"}, "mimalloc"),
    ],
)
def test_workers_allocate_from_the_system_unless_they_are_told_otherwise(
    environment: str, conf: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    if environment:
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", environment)
    assert spark_options(SparkSettings(conf=conf), tmp_path)[KEY] == expected


@pytest.mark.parametrize(("environment", "conf", "expected"), [("", {}, "1"), ("4", {}, "4"), ("", {ARENAS: "2"}, "2")])
def test_threads_of_a_worker_allocate_from_one_arena_unless_they_are_told_otherwise(
    environment: str, conf: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    if environment:
        monkeypatch.setenv("MALLOC_ARENA_MAX", environment)
    assert spark_options(SparkSettings(conf=conf), tmp_path)[ARENAS] == expected
