"""Restored rows in a spill: every batch comes back, in order, whatever its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from lakeward.errors import CorruptFileError
from lakeward.model.exchange import ChannelState, ExchangeState, KeptRows, OpenRows, Segment, Side
from lakeward.model.partitioning import KEY_GROUPS
from lakeward.storage.spill import SpillFiles, SpillWriter
from lakeward.storage.spill_reader import SpillReader
from lakeward.subtask.exchange.checkpoint_part import ExchangePart
from lakeward.subtask.exchange.open_rows import Piece
from lakeward.subtask.exchange.spilled_rows import (
    OwnSegments,
    PieceWriter,
    RecoveredRest,
    RestoredChannel,
    RowPlace,
    channels_of,
    pieces,
)
from lakeward_mutants import recovery_shells as bugs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def batch(*names: str) -> pa.RecordBatch:
    return pa.record_batch({"name": pa.array(names, pa.string())})


def spill(folder: Path, rows: list[tuple[int, pa.RecordBatch]], *, segment: int = 1 << 20) -> SpillFiles:
    writer = SpillWriter([str(folder)], quota_bytes=1 << 30, segment_bytes=segment)
    found = PieceWriter(writer)
    for channel, records in rows:
        found.write(channel, 0, np.arange(records.num_rows), records)
    found.flush()
    return writer.seal()


def names(found: Iterator[tuple[int, pa.RecordBatch]]) -> list[tuple[int, str]]:
    return [(channel, name) for channel, records in found for name in records.column(0).to_pylist()]


def drained(files: SpillFiles) -> list[tuple[int, str]]:
    return names((piece.channel, piece.records) for piece in pieces(SpillReader(files).read))


@pytest.mark.parametrize("segment", [7, 64, 1000, 1 << 20])
def test_40_41_a_batch_that_lies_over_segments_comes_back_whole(tmp_path: Path, segment: int) -> None:
    """Its length may be cut too."""
    rows = [(0, batch("a" * 3000)), (1, batch("b")), (1, batch()), (3, batch("c" * 50, "d"))]
    files = spill(tmp_path, rows, segment=segment)
    assert drained(files) == [(0, "a" * 3000), (1, "b"), (3, "c" * 50), (3, "d")]


@pytest.mark.parametrize("groups", [(0, KEY_GROUPS), (3, 17)])
def test_72_what_a_snapshot_has_begins_with_a_row_wherever_the_drain_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: tuple[int, int]
) -> None:
    """Also where the segment was a share of one before."""
    monkeypatch.setattr("lakeward.subtask.exchange.spilled_rows.SEGMENT_BYTES", 60)
    shared = KeptRows(*groups, 4, 7)
    restored = [RestoredChannel(-1, b"p", (Segment("a", 20, 1, 1), Segment("b", 30, 1, 1, shared)))]
    restored.append(RestoredChannel(0, b"", (Segment("c", 9, 1, 1),)))
    own = OwnSegments(0, 2, restored)
    writer = SpillWriter([str(tmp_path)], quota_bytes=1 << 30)
    found = PieceWriter(writer)
    every: list[tuple[str, int]] = []
    for channel, number, segment in own.segments():
        first = 0 if segment.kept is None else segment.kept.first_row
        for start in range(first, segment.rows, 5):
            places = np.arange(start, min(start + 5, segment.rows), 2)
            found.write(channel, number, places, batch(*(f"{place:09}" for place in places)))
            every += ((segment.name, place) for place in places.tolist())
    found.flush()
    own.rows = found.rows
    drained, at = 0, RowPlace(0, 0, 0, 0)
    for piece in pieces(SpillReader(writer.seal()).read):
        assert piece.first >= at
        for since in (at, piece.first):
            left = [(one.name, one.kept) for _, one in own.left(since)]
            assert all(kept is not None and kept.end_group <= KEY_GROUPS // 2 for _, kept in left)
            kept = {name: one for name, one in left if one is not None}
            assert [row for row in every if row[0] in kept and row[1] >= kept[row[0]].first_row] == every[drained:]
            assert sum(one.rows for one in kept.values()) == len(every) - drained
        drained, at = drained + piece.records.num_rows, piece.after
    assert drained == len(every)
    assert list(own.left(at)) == []


def test_small_batches_are_gathered_and_large_ones_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeward.subtask.exchange.spilled_rows.SEGMENT_BYTES", 1000)
    small = [(0, batch(f"{number}")) for number in range(20)]
    large = [(1, batch(*(f"{number:0100}" for number in range(50))))]
    found = [piece.records.num_rows for piece in pieces(SpillReader(spill(tmp_path, [*small, *large])).read)]
    assert found[0] == 20
    assert len(found) > 5
    assert sum(found[1:]) == 50


def test_a_spill_that_ends_in_the_midst_of_a_batch_is_damaged(tmp_path: Path) -> None:
    writer = SpillWriter([str(tmp_path)], quota_bytes=1 << 30)
    writer.write(0, bytes(7) + b"\x09" + bytes(28) + b"only")
    with pytest.raises(CorruptFileError, match="a piece of 9 bytes"):
        next(pieces(SpillReader(writer.seal()).read))


def test_what_was_restored_is_drained_in_the_order_in_which_it_would_be_read_back() -> None:
    def segment(name: str) -> Segment:
        return Segment(name, 1, 1, 1)

    def state(number: int) -> ExchangeState:
        channels = (
            ChannelState(number, 0, Side.OUT, segment(f"out {number}")),
            ChannelState(0, number, Side.IN, segment(f"in {number}")),
        )
        open_rows = (OpenRows(b"p", (segment(f"open {number}"),)),)
        return ExchangeState(subtask=number, subtasks=2, open_rows=open_rows, channels=channels)

    found = [one.segments[0].name for one in channels_of([state(1), state(0)])]
    assert found == ["open 0", "open 1", "in 0", "in 1", "out 0", "out 1"]


def test_a_part_lists_what_is_left_of_restored_rows_behind_what_is_written_and_before_what_came_later(
    tmp_path: Path,
) -> None:
    """Else a restored row of a key would be written after a live one."""

    def write(batches: Iterator[pa.RecordBatch]) -> Segment:
        return Segment(",".join(name for _, name in names((0, one) for one in batches)), 1, 1, 1)

    restored = channels_of(
        [
            ExchangeState(
                subtask=0,
                subtasks=3,
                open_rows=(OpenRows(b"p", (Segment("a", 1, 1, 1),)),),
                channels=(ChannelState(2, 0, Side.OUT, Segment("b", 1, 1, 1)),),
            )
        ]
    )
    part = ExchangePart(3, close_files=False, progress=(), blocked=())
    part.state = ExchangeState(subtask=0, subtasks=2)
    part.open_rows = {b"p": (Piece([batch("written")]),)}
    part.keep(1, [batch("live")])
    left = [Segment(name, 9, 1, 1, KeptRows(0, 64, 5, 2)) for name in "ab"]
    part.recovered, part.restored = RecoveredRest(enumerate(left), 0), restored
    state = part.store(0, 1, write).exchange
    assert state is not None
    assert [(one.partition, [segment.name for segment in one.segments]) for one in state.open_rows] == [
        (b"p", ["written", "a"])
    ]
    assert [(one.producer, one.side, one.segment.name) for one in state.channels] == [
        (0, Side.IN, "b"),
        (1, Side.IN, "live"),
    ]
    assert state.open_rows[0].segments[1] == left[0]


def lie_over_segments(folder: Path) -> None:
    test_40_41_a_batch_that_lies_over_segments_comes_back_whole(folder, 64)


@pytest.mark.parametrize(
    ("bug", "case"),
    [
        (bugs.bug_18_cuts_a_batch_where_a_segment_ends, lie_over_segments),
        (bugs.stores_live_rows_first,
         test_a_part_lists_what_is_left_of_restored_rows_behind_what_is_written_and_before_what_came_later),
    ],
    ids=lambda one: one.__name__,
)  # fmt: skip
@pytest.mark.mutant
def test_each_known_bug_of_rows_in_a_spill_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[pytest.MonkeyPatch], None],
    case: Callable[[Path], None],
) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, CorruptFileError, pa.ArrowInvalid, OSError)):
        case(tmp_path)
