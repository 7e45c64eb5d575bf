"""Rounds leave nothing open and nothing behind; `tox run -e soak` runs ten thousand of them."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest

from lakeward_service_kit.soak import Sample, grown, publish_folder_lake, run_rounds

if TYPE_CHECKING:
    from pathlib import Path

FLAT = Sample(
    rounds=0,
    open_files=30,
    threads=5,
    tasks=8,
    objects=90_000,
    rss_kib=150_000,
    state_files=9,
    store_files=200,
    store_rows=400,
    lake_metadata=4,
)


@pytest.mark.slow
def test_some_hundred_rounds_leave_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    publish_folder_lake(tmp_path / "site")
    # In a process of its own: threads that other tests have left behind come and go.
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        found, committed = process.submit(run_rounds, tmp_path / "world", 120, 12).result()
    # Files of the source come and go by age, which so short a run does not see.
    assert [line for line in found if not line.startswith(("store", "rss"))] == []
    assert committed > 100


def samples(**growth: int) -> list[Sample]:
    """Make samples of 10,000 rounds, in which some counts grow by that much a round."""
    rounds = range(0, 10_000, 500)
    return [
        replace(FLAT, rounds=number, **{name: getattr(FLAT, name) + by * number for name, by in growth.items()})
        for number in rounds
    ]


def test_a_flat_run_has_grown_nowhere() -> None:
    assert grown(samples()) == ()


@pytest.mark.parametrize("name", [name for name in Sample.__dataclass_fields__ if name != "rounds"])
def test_one_more_a_round_is_found(name: str) -> None:
    by = {"objects": 3, "rss_kib": 5}.get(name, 1)
    assert [line.partition(":")[0] for line in grown(samples(**{name: by}))] == [name]
