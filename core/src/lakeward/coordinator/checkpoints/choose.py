"""Which checkpoint a round may go on from: decided from the checkpoint, the lake's head and the table alone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.column_ids import written_columns
from lakeward.model.exchange import complete

if TYPE_CHECKING:
    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.model.checkpoints import RoundSnapshot
    from lakeward.model.results import LakeHead, OffsetCommit
    from lakeward.model.tables import TablePath, TableSpec


def _way(exchange: bool) -> str:
    return "with an exchange" if exchange else "without an exchange"


def _layout(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "the source's"


def why_not_of_layout(state: CheckpointContents, table: TableSpec, *, exchange: bool) -> str:
    """Return why a round that writes rows in this way cannot go on from a checkpoint; empty if it can."""
    was, layout = state.round.layout, tuple(map(str, table.lake_partition))
    if state.round.in_lake != table.in_lake.path:
        return f"its lake table was {state.round.in_lake}, now it is {table.in_lake.path}"
    if was != layout:
        return f"its lake layout was {_layout(was)}, now it is {_layout(layout)}"
    if bool(state.exchange) is not exchange:
        return f"its rows were written {_way(not exchange)}, now they are {_way(exchange)}"
    other = sorted(set(state.round.columns) - set(written_columns(table)))
    if other:
        return f"its rows have columns that are gone, or called otherwise by now: {', '.join(other)}"
    return ""


def why_not(state: CheckpointContents, path: TablePath, head: LakeHead | None) -> str:
    """Return why a checkpoint is not valid for the lake table as it is; empty if it is.

    `path` is the table's present name; `head` is None where there is no lake table.
    """
    was = state.round
    if was.path != path:
        return f"its table was {was.path}, now it is {path}"
    if head is None:
        return "the lake table is gone"
    if head.stamp is None or head.stamp.service != was.round_id.incarnation.service:
        return f"stamp of the lake table: expected one of {was.round_id.incarnation.service}, found {head.stamp}"
    if (head.commit.snapshot_id if head.commit is not None else None) == was.base_commit:
        return ""
    return _why_no_step(was, state, head.commit)


def _why_no_step(was: RoundSnapshot, state: CheckpointContents, newest: OffsetCommit | None) -> str:
    """Return why the newest commit is not a step made from this checkpoint or an earlier one; empty if it is one."""
    own = (was.round_id.incarnation, was.round_id.name)
    if newest is None or newest.offsets is None or (newest.incarnation, newest.round_name) != own:
        found = newest.snapshot_id if newest is not None else None
        return f"newest commit with offsets: expected {was.base_commit}, found {found}"
    ours = state.offsets()
    beyond = [bucket for bucket, offset in newest.offsets.items() if offset > ours.get(bucket, 0)]
    if beyond:
        return f"step {newest.step} of its round holds more than it does, in {len(beyond)} buckets"
    ahead = any(offset > newest.offsets.get(bucket, 0) for bucket, offset in ours.items())
    if not ahead and not complete(state.exchange):
        # A commit has all of its rows in closed files: they were closed, under names of their own, after this
        # checkpoint. A later one may look the same, with half a snapshot in its rows; that is read again.
        return f"step {newest.step} of its round has the rows that it holds, in files that it does not name"
    return ""
