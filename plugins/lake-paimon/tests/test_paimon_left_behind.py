"""What a start leaves that dies at a step of a stamp or right after a commit, and who finds it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.errors import FencedError, TableGoneError
from lakeward.model.results import CommitOutcome
from lakeward_lake_paimon import commit
from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_paimon_kit.kills import Kill, KilledError
from lakeward_paimon_kit.others import Other
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from lakeward.ports import Lake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

STEPS = 6
"""Changes of the disk by a stamp: two lists, the link, two hints, and the file that says whose it is."""


@pytest.fixture
def folder(options: PaimonOptions) -> Path:
    """Where the table lies."""
    return Path(options.warehouse) / "shop.db" / "orders"


def tier(plugin: PaimonLakePlugin, lake: Lake, start: int, number: int = 1) -> TieringRound:
    """Commit a round of one row."""
    tiering = TieringRound(plugin, lake, log_table(), incarnation(start), number)
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": start + number}])])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    return tiering


def strays(folder: Path) -> set[str]:
    """Return lists and manifests that no snapshot names, and files that were being written."""
    texts = [one.read_text(encoding="utf-8") for one in folder.glob("snapshot/snapshot-*")]
    lists = {one.name for one in folder.glob("manifest/manifest-list-*") if not any(one.name in text for text in texts)}
    return lists | {one.name for one in folder.rglob(".lakeward-*")}


@pytest.mark.parametrize("at", range(STEPS))
def test_files_of_a_stamp_that_died_at_any_step_go_with_the_next_expiry(
    plugin: PaimonLakePlugin, lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    lake.open_table(log_table(), incarnation(1000))
    with monkeypatch.context() as patch:
        Kill(patch, at)
        with pytest.raises(KilledError):
            lake.stamp(PATH, incarnation(1000))
    tier(plugin, lake, 2000)
    lake.expire(PATH, frozenset())
    assert strays(folder) == set()
    assert head_of(lake).stamp == incarnation(2000)


def test_files_of_a_stamp_that_may_still_land_stay(
    plugin: PaimonLakePlugin, lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier(plugin, lake, 1000)
    with monkeypatch.context() as patch:
        Kill(patch, 2)
        with pytest.raises(KilledError):
            lake.stamp(PATH, incarnation(2000))
    lake.expire(PATH, frozenset())
    assert len(strays(folder)) == 2


def test_a_hint_that_was_being_written_goes_with_the_next_expiry(
    plugin: PaimonLakePlugin, lake: Lake, folder: Path
) -> None:
    tier(plugin, lake, 1000)
    for place in ("snapshot", "_lakeward", "schema"):
        (folder / place / ".lakeward-hint-0123abcd").touch()
    (folder / "_lakeward" / "commit-1").write_bytes((folder / "snapshot" / "snapshot-1").read_bytes())
    lake.expire(PATH, frozenset())
    assert strays(folder) == set()
    assert [one.name for one in (folder / "_lakeward").glob("commit-*")] == ["commit-2"]


def test_a_stamp_that_another_program_has_expired_fences_earlier_starts(
    plugin: PaimonLakePlugin, lake: Lake, folder: Path
) -> None:
    live = TieringRound(plugin, lake, log_table(), incarnation(2000))
    Other(folder).commit("COMPACT")
    (folder / "snapshot" / "snapshot-1").unlink()
    with pytest.raises(FencedError) as fenced:
        lake.stamp(PATH, incarnation(1000))
    assert fenced.value.by == str(incarnation(2000))
    assert head_of(lake).stamp == incarnation(2000)
    assert lake.commit(live.request()) is CommitOutcome.LANDED


def test_a_commit_whose_start_died_before_it_was_copied_is_copied_by_the_next_one(
    plugin: PaimonLakePlugin, lake: Lake, folder: Path
) -> None:
    tier(plugin, lake, 1000)
    before = head_of(lake).commit
    (folder / "_lakeward" / "commit-2").unlink()
    lake.stamp(PATH, incarnation(2000))
    Other(folder).commit("COMPACT")
    for number in (1, 2, 3):
        (folder / "snapshot" / f"snapshot-{number}").unlink()
    assert head_of(lake).commit == before


def test_no_task_is_written_for_a_table_that_nobody_has_opened(
    plugin: PaimonLakePlugin, lake: Lake, folder: Path
) -> None:
    tiering = tier(plugin, lake, 1000)
    LocalStorage().delete(str(folder / "_lakeward" / "table.json"))
    with pytest.raises(TableGoneError, match="belongs to table id None, expected 7"):
        lake.writer_task(log_table(), head_of(lake), tiering.round_id)


def test_lists_of_a_commit_that_was_copied_last_go_with_its_snapshot(
    plugin: PaimonLakePlugin, options: PaimonOptions, folder: Path
) -> None:
    lake = plugin.open(msgspec.structs.replace(options, keep_snapshots=1), FakeClock())
    for number in (1, 2):
        tier(plugin, lake, 1000, number)
    # As if the start had died between its second commit and the copy of that.
    (folder / "_lakeward" / "commit-3").unlink()
    (folder / "_lakeward" / "commit-2").write_bytes((folder / "snapshot" / "snapshot-2").read_bytes())
    assert lake.expire(PATH, frozenset()) == 2
    assert strays(folder) == set()


def test_offsets_of_a_commit_that_another_program_has_expired_go_with_its_copy(
    plugin: PaimonLakePlugin, lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "INLINE_BYTES", 10)
    tier(plugin, lake, 1000)
    Other(folder).commit("COMPACT")
    for number in (1, 2):
        (folder / "snapshot" / f"snapshot-{number}").unlink()
    assert head_of(lake).commit is not None
    (offsets,) = (folder / "_lakeward").glob("offsets-*")
    tier(plugin, lake, 1000, 2)
    assert not offsets.exists()
    assert len(list((folder / "_lakeward").glob("offsets-*"))) == 1
