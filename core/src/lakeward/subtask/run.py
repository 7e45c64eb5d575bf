"""Runs one Spark task: a subtask with sockets, threads, the installed plugins, and the real clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakeward.arrow_alone import use_arrow_alone
from lakeward.clock import SystemClock
from lakeward.hooks.discovery import load
from lakeward.hooks.plugins import LAKE_GROUP, SOURCE_GROUP, LakePlugin, SourcePlugin
from lakeward.sockets import SocketTransport
from lakeward.sockets.flight.transport import FlightExchange
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.ports import SubtaskPorts
from lakeward.subtask.subtask import Subtask
from lakeward.subtask.task_log import begin_task_log
from lakeward.threads import ThreadExecutor

if TYPE_CHECKING:
    from lakeward.model.jobs import SubtaskPlace


def run_task(place: SubtaskPlace) -> str:
    """Do the work of one task in a worker of Spark's, whose log lines are all this task's. See `run_subtask`."""
    use_arrow_alone()
    begin_task_log(place)
    return run_subtask(place)


def run_subtask(place: SubtaskPlace) -> str:
    """Do one task's work.

    Args:
        place: which task this is.

    Returns:
        `done`, `cancelled` if the coordinator no longer counts this attempt, or `failed` if the coordinator was told of
        an error that every retry would meet.

    Raises:
        LakewardError: it could not continue; the coordinator was told first if it could be reached.
    """
    return Subtask(place, real_ports(place)).run()


def real_ports(place: SubtaskPlace | None = None) -> SubtaskPorts:
    """Return the ports of a subtask in a Spark executor; a `place` that is None exchanges no rows."""
    clock = SystemClock()
    return SubtaskPorts(
        transport=SocketTransport(clock),
        executor=ThreadExecutor(),
        clock=clock,
        source=lambda name: cast("SourcePlugin", load(SOURCE_GROUP, name)),
        lake=lambda name: cast("LakePlugin", load(LAKE_GROUP, name)),
        checkpoints=lambda root: CheckpointFiles(SmallFiles(root), clock),
        exchange=FlightExchange(clock, coordinator=("", 0) if place is None else (place.job.host, place.job.port)),
    )
