"""What must hold of tables with a lake partitioning of their own: in the lake, and in each checkpoint."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from lakeward.model.splits import LogSplit
from lakeward.model.tables import Change
from lakeward.subtask.exchange.routing import Routing
from lakeward_simulator.partitions import SimPartitioner, fields_of, partition_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.model.exchange import ExchangeState, Segment
    from lakeward.model.partitioning import PartitionField
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward_simulator.lake import LakeTable
    from lakeward_simulator.partitions import Route
    from lakeward_simulator.records import Row
    from lakeward_simulator.source import SimTable
    from lakeward_simulator.world import World


def wrong_in_lake(world: World, table: LakeTable, source: SimTable, route: Route) -> Iterator[str]:
    """Yield what is wrong with the rows of a lake table: another partition, another value, another order.

    Args:
        world: everything.
        table: of the lake.
        source: what it is of.
        route: its kind.
    """
    newest: dict[tuple[bytes, object], int] = {}
    for one in table.log:
        files = one.request.files if one.request is not None else ()
        start = next((who.number for who in world.coordinators if who.incarnation == one.stamp), 1)
        fields = fields_of(world.partitioned.layout(route, start))
        if route.keyed:
            yield from _unknown(world, files)
        for file in files:
            for row in world.lake.files.get(file.path, ()):
                if (wrong := _wrong_row(source, route, fields, row, file)) is not None:
                    yield wrong
                before = newest.get((file.detail, row.bucket), -1)
                if route.keyed and row.offset < before:
                    yield f"{file.path}: offset {row.offset} of bucket {row.bucket} comes after {before}"
                newest[file.detail, row.bucket] = row.offset


def wrong_in_cut(world: World, source: SimTable, state: CheckpointContents) -> str | None:
    """Return what is wrong with a checkpoint of an exchange: it holds each record before its cut once, and no other.

    Args:
        world: everything.
        source: the table.
        state: of the checkpoint.
    """
    missing = [file.path for one in state.exchange for file in one.files if file.path not in world.lake.files]
    if missing:
        return f"it names files that are not there: {missing}"
    fields = fields_of(state.round.layout)
    found = Counter(
        row for one in state.exchange for row in _rows(world, source, one, fields, gathered=state.round.gathered)
    )
    found.update(row for path in state.letters() for row in world.lake.files[path])
    results = state.results()
    expected: Counter[Row] = Counter()
    for split in state.round.splits:
        if (result := results.get(split.split_id)) is not None:
            end = result.end_offset if isinstance(split, LogSplit) else result.rows
        elif (progress := state.progress.get(split.split_id)) is not None:
            end = progress.position
        else:
            continue
        expected.update(_read(source, split, end))
    if found == expected:
        return None
    return f"it lacks {_shown(expected - found)}, and has besides {_shown(found - expected)}"


def _rows(
    world: World, source: SimTable, state: ExchangeState, fields: tuple[PartitionField, ...], *, gathered: bool
) -> Iterator[Row]:
    for file in state.files:
        yield from world.lake.files[file.path]
    for segment in state.segments():
        data = world.files.content(segment.name)
        if data is None:
            continue  # its rows are missing, then
        with pa.ipc.open_stream(data) as reader:
            stored = reader.read_all().combine_chunks().to_batches()
        for batch in stored:
            yield from rows_of(_held(source.route, fields, segment, batch, gathered=gathered), source.spec.table_id)


def _held(
    route: Route | None,
    fields: tuple[PartitionField, ...],
    segment: Segment,
    records: pa.RecordBatch,
    *,
    gathered: bool,
) -> pa.RecordBatch:
    """Return the rows of a segment that a checkpoint holds."""
    if segment.kept is None or route is None:
        return records
    routing = Routing(SimPartitioner(fields), 1, by_bucket=not (route.keyed or gathered))
    return routing.only(records.slice(segment.kept.first_row), 0, segment.kept)


def _read(source: SimTable, split: Split, end: int) -> Iterable[Row]:
    if isinstance(split, LogSplit):
        return (source.row(split.bucket, offset) for offset in range(split.start, end))
    return source.snapshot_rows(split.bucket, split.snapshot_id, split.log_offset)[:end]


def _wrong_row(
    source: SimTable, route: Route, fields: tuple[PartitionField, ...], row: Row, file: LakeFile
) -> str | None:
    if (partition := partition_of(fields, row)) != file.detail:
        return f"{file.path}: {row} is in partition {file.detail!r}, and belongs to {partition!r}"
    if row.snapshot is not None:
        return None
    was = source.row(row.bucket, row.offset)
    if route.moves and was.change == Change.UPDATE_BEFORE:
        was = replace(was, change=Change.DELETE)
    return None if row == was else f"{file.path}: {row} was {was}"


def _unknown(world: World, files: Iterable[LakeFile]) -> Iterator[str]:
    """Yield files that hold rows of a key of which an earlier file of the commit has some, unknown to its writer."""
    earlier: dict[bytes, dict[tuple[object, int], str]] = {}
    for file in files:
        keys = earlier.setdefault(file.detail, {})
        mine = {(row.bucket, row.key) for row in world.lake.files.get(file.path, ())}
        known = world.lake.known.get(file.path, frozenset())
        for key in mine & keys.keys():
            if keys[key] not in known:
                yield f"{file.path}: its writer did not know of {keys[key]}, which has rows of the same key"
        keys |= dict.fromkeys(mine, file.path)


def _shown(rows: Counter[Row]) -> str:
    some = [f"{row.bucket}@{row.offset if row.snapshot is None else f'snapshot key {row.key}'}" for row in rows]
    return f"{sorted(some)}" if some else "nothing"
