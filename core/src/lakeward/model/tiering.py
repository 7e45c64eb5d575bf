"""The source's tiering queue: which table, which epoch (fluss.md, "The tiering queue")."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.tables import TableBucket, TablePath


@dataclass(frozen=True, slots=True)
class TableAssignment:
    """A table in hand, under an epoch.

    `freshness_s` is what the table was promised, `waited_s` for how long it has been due already, as far as is known.
    """

    path: TablePath
    table_id: int
    epoch: int
    coordinator_epoch: int
    freshness_s: float
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TableEpoch:
    """What a heartbeat says of one table: this table, under this epoch."""

    table_id: int
    epoch: int
    coordinator_epoch: int


class Refusal(Enum):
    """Why the source refused one table of a heartbeat (fluss.md, "The tiering queue")."""

    GONE = "gone"
    FENCED = "fenced"
    COORDINATOR_CHANGED = "coordinator_changed"
    NOT_TIERING = "not_tiering"


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """One heartbeat. Processed in this order: failed, renewed, finished, request."""

    renewed: tuple[TableEpoch, ...] = ()
    finished: tuple[TableEpoch, ...] = ()
    forced: frozenset[int] = frozenset()
    """Table ids among `finished` that must be assigned again at once."""
    failed: tuple[TableEpoch, ...] = ()
    request: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """What the source answered. `assignment` is None where the queue is empty or nothing was requested."""

    coordinator_epoch: int
    assignment: TableAssignment | None
    refused: Mapping[int, Refusal]
    """Table id to reason; a table that is not in it was accepted."""


@dataclass(frozen=True, slots=True)
class LakeRecord:
    """What the source has on record about a table's lake snapshot."""

    snapshot_id: int
    offsets: Mapping[TableBucket, int]
