"""What the job of a round tells the round, and what a handler leaves for later: events of the round's queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lakeward.coordinator.rounds.failing_splits import FailureCause
    from lakeward.machines.checkpoints.messages import Admit
    from lakeward.model.leases import FailoverKind
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import KvSnapshot

# --- what the job tells its round -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FirstDeployed:
    """The first subtask is deployed; said once, whatever happens to it."""


@dataclass(frozen=True, slots=True)
class JobFailing:
    """A split has failed again, or each of those was read since; said when that changes."""

    failing: bool


@dataclass(frozen=True, slots=True)
class JobDrained:
    """Every split is finished or left out, and written. `left_out`: why splits failed that were left out, if any."""

    finished_early: bool
    left_out: FailureCause


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job cannot go on; `code` is that of the error, empty where none of ours is why."""

    reason: str
    permanent: bool = False
    code: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotLost:
    """A snapshot vanished under a reader; `lost` are those that it was reading."""

    lost: frozenset[KvSnapshot]
    reason: str


@dataclass(frozen=True, slots=True)
class TableLost:
    """A subtask says that the table is gone."""


@dataclass(frozen=True, slots=True)
class CheckpointLost:
    """What the checkpoint holds that the launch goes on from cannot be read."""

    reason: str


@dataclass(frozen=True, slots=True)
class SplitsBack:
    """Splits came back after a failure and will be read again."""

    kind: FailoverKind
    attempt: int
    splits: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class FilesRejected:
    """An attempt that no longer counts wrote these files, and nothing references them."""

    files: tuple[LakeFile, ...]


@dataclass(frozen=True, slots=True)
class JobOver:
    """None of the job's tasks runs any more."""


# --- what a handler leaves for later --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deployable:
    """An attempt that has registered may be deployed, once the one that it replaces is lost."""

    admit: Admit


@dataclass(frozen=True, slots=True)
class AttemptUseless:
    """An attempt lives, and cannot go on."""

    subtask: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class WorkBack:
    """What a launch did not finish can be assigned again, or is left out. `why` it ended, for people."""

    why: str


class Next(NamedTuple):
    """An event that is taken before all others of the queue: a snapshot is of one moment."""

    event: object
