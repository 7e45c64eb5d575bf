"""Which of a table's checkpoints a round goes on from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from msgspec import structs

from lakeward.coordinator.checkpoints.choose import why_not_of_layout
from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.coordinator.checkpoints.known import KnownCheckpoints
from lakeward.coordinator.checkpoints.restorer import Restorer
from lakeward.model.column_ids import with_column_id
from lakeward.model.results import LakeHead, OffsetCommit
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import (
    FIRST,
    PATH,
    exchange_snapshot,
    reference,
    round_snapshot,
    write_segment,
)
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.lake_tables import log_table

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.checkpoints import CheckpointRef


@pytest.fixture(autouse=True)
def closed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lake file that checkpoints name."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "w/data/part-00000.parquet"
    file.parent.mkdir(parents=True)
    file.touch()


@pytest.mark.parametrize("open_rows", [False, True])
def test_a_commit_of_the_same_offsets_has_open_rows_of_a_checkpoint_in_other_files(
    tmp_path: Path, open_rows: bool
) -> None:
    ref, table = reference(), log_table(path=PATH, table_id=7)
    lake, store = FolderLake(tmp_path), CheckpointFiles(SmallFiles(str(tmp_path / "state")), FakeClock())
    lake.open_table(table, FIRST)
    segments = (write_segment(store, ref),) if open_rows else ()
    was, part = structs.replace(round_snapshot(ref), finished=()), exchange_snapshot(*segments)
    store.complete(ref, was, (store.write_part(ref, part),), None)
    offsets = CheckpointContents.of(was, [part]).offsets()
    commit = OffsetCommit(5, offsets, None, was.round_id.incarnation, was.round_id.name, 2, 0)
    restorer = Restorer(store, lake, FIRST, KnownCheckpoints())
    found = restorer.find(table, LakeHead(PATH, 7, "w", 5, FIRST, commit, commit), exchange=True)
    assert (found is None) is open_rows


def test_the_rows_of_a_doubted_checkpoint_are_read_before_a_round_goes_on_from_it(tmp_path: Path) -> None:
    """Damage that leaves the size as it was is found by a subtask, whose word may be lost."""
    ref, table = reference(), log_table(path=PATH, table_id=7)
    store = CheckpointFiles(SmallFiles(str(tmp_path / "state")), FakeClock())
    lake = FolderLake(tmp_path)
    lake.open_table(table, FIRST)
    segment = write_segment(store, ref)
    was = structs.replace(round_snapshot(ref), finished=())
    store.complete(ref, was, (store.write_part(ref, exchange_snapshot(segment)),), None)
    restorer = Restorer(store, lake, FIRST, KnownCheckpoints())

    def finds() -> bool:
        return restorer.find(table, LakeHead(PATH, 7, "w", None, FIRST, None, None), exchange=True) is not None

    restorer.known.verify_rows(ref)
    assert finds(), "nothing is wrong with it"
    file = tmp_path / "state" / segment.name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert finds(), "it was read once, and has its size"
    restorer.known.verify_rows(ref)
    assert not finds()


def test_of_several_checkpoints_the_newest_one_is_gone_on_from_and_an_older_one_where_that_is_rejected(
    tmp_path: Path,
) -> None:
    older, newer = reference(1), reference(2)
    store, lake = CheckpointFiles(SmallFiles(str(tmp_path / "state")), FakeClock()), FolderLake(tmp_path)
    table = log_table(path=PATH, table_id=7)
    lake.open_table(table, FIRST)
    for ref in (older, newer):
        store.complete(ref, structs.replace(round_snapshot(ref), finished=()), (), None)
    restorer, head = Restorer(store, lake, FIRST, KnownCheckpoints()), LakeHead(PATH, 7, "w", None, FIRST, None, None)

    def found() -> CheckpointRef | None:
        restored = restorer.find(table, head, exchange=False)
        return restored.ref if restored is not None else None

    assert found() == newer
    restorer.known.reject(newer, "its rows are damaged")
    assert found() == older


def test_files_of_a_checkpoint_that_was_gone_on_from_stay_until_a_commit_lands_though_it_is_deleted_late(
    tmp_path: Path,
) -> None:
    """A delete that got no answer may take effect once the next round has begun."""
    ref, table = reference(), log_table(path=PATH, table_id=7)
    store, lake = CheckpointFiles(SmallFiles(str(tmp_path / "state")), FakeClock()), FolderLake(tmp_path)
    lake.open_table(table, FIRST)
    store.complete(ref, structs.replace(round_snapshot(ref), finished=()), (), None)
    restorer = Restorer(store, lake, FIRST, KnownCheckpoints())
    restored = restorer.find(table, LakeHead(PATH, 7, "w", None, FIRST, None, None), exchange=False)
    assert restored is not None
    store.delete(ref)
    assert restorer.named(7) == restored.state.paths() != frozenset()
    restorer.known.landed(7)
    assert restorer.named(7) == frozenset()


def test_a_table_that_was_forgotten_is_not_known_again_by_a_question(tmp_path: Path) -> None:
    store, lake = CheckpointFiles(SmallFiles(str(tmp_path / "state")), FakeClock()), FolderLake(tmp_path)
    restorer = Restorer(store, lake, FIRST, KnownCheckpoints())
    restorer.known.of(7)
    restorer.forget(7)
    restorer.named(7)
    restorer.known.landed(7)
    assert restorer.known._tables == {}


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        ({"id": 0, "name": 1}, ""),
        ({"id": 0, "name": 1, "note": 2}, ""),
        ({"id": 0, "label": 1}, "its rows have columns that are gone, or called otherwise by now: 1:name"),
        ({"name": 0, "id": 1}, "its rows have columns that are gone, or called otherwise by now: 0:id, 1:name"),
    ],
    ids=["as it was", "one more", "renamed", "exchanged"],
)
def test_rows_of_an_exchange_are_not_gone_on_with_once_their_columns_have_other_names(
    names: dict[str, int], wrong: str
) -> None:
    was = structs.replace(round_snapshot(reference()), columns=("0:id", "1:name"))
    columns = [with_column_id(pa.field(name, pa.string()), number) for name, number in names.items()]
    state = CheckpointContents.of(was, [exchange_snapshot()])
    assert why_not_of_layout(state, log_table(pa.schema(columns)), exchange=True) == wrong
