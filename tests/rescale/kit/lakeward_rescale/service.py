"""The process of the service: the real one, whose jobs are processes forked beside it."""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from lakeward.clock import SystemClock
from lakeward.coordinator.effects.plan import Planning
from lakeward.model.jobs import SubtaskPlace, UpkeepJobEnd
from lakeward.observe.logs import setup_logs
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_rescale import subtask
from lakeward_rescale.notes import Notes, Orders
from lakeward_rescale.tables import rules
from lakeward_rescale.zygote import fork
from lakeward_service_kit.service_world import LaterClock, PlainBackend, World
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lakeward.coordinator.rounds.round import Round
    from lakeward.model.checkpoints import CheckpointRef, LeaseCopy, PartFile, RoundSnapshot, SubtaskSnapshot
    from lakeward.model.jobs import JobSpec, UpkeepJob
    from lakeward.ports import Clock
    from lakeward_rescale.scenario import Scenario
    from lakeward_rescale.zygote import Child

_CANCEL_S = 1.0
"""Seconds that a cancelled subtask has to end by itself."""
_OTHERS_S = 0.2
"""Longest time for which the others live on when one of a gang has died: Spark takes them with it."""
FENCE_S = 5.0


def run(directory: Path, zygote: Path, scenario: Scenario, number: int, later: bool) -> tuple[str, ...]:
    """Serve until both tables are in the lake.

    Args:
        directory: of the run.
        zygote: its socket.
        scenario: of the run.
        number: how many services there were before.
        later: whether its clock is beyond the fence time of all that ran before.

    Returns:
        The names of tables whose last round failed.
    """
    setup_logs("text", "info")
    notes = Notes(directory)
    _give_sizes(directory)
    clock = LaterClock() if later else SystemClock()
    options = IcebergOptions(warehouse=str(directory / "warehouse"), target_file_size_bytes=scenario.file_bytes)
    lake = IcebergLakePlugin().open(options, clock)
    store = EmbeddedStore.open(directory / "store")
    world = World(directory, store, lake, PlainBackend(), clock)  # type: ignore[arg-type] # made for the folder lake; any will do
    source = EmbeddedSource(store)
    service = world.service(
        rules=partial(rules, scenario),
        source=source,
        mirrors=True,
        jobs=ForkedJobs(directory, zygote, scenario, number),
        checkpoints=NotingCheckpoints(SmallFiles(str(directory / "state")), world.clock, notes),
        once=True,
        lake_type="iceberg",
        open_files=scenario.open_files,
        open_rows=scenario.open_rows_bytes,
        interval_s=scenario.interval_s,
        checkpoint_timeout_s=10.0,
        pause_s=0.0,
        aligned_timeout_s=scenario.aligned_timeout_s,
        during_recovery=scenario.during_recovery,
        spill_dirs=(str(directory / "spill"),) if scenario.during_recovery else (),
        tolerated=1000,
        job_attempts=1000,
        subtask_timeout_s=20.0,
        max_round_s=600.0,
        fence_s=FENCE_S,
        commit_timeout_s=20.0,
    )
    return tuple(map(str, asyncio.run(service.serve()).failed))


def _give_sizes(directory: Path) -> None:
    """Let the run say how many subtasks a table gets, in the place of the slots that are free."""

    def free_slots(self: Planning, one: Round, total: int) -> int:
        del self, total
        return Orders.read(directory).subtasks[one.facts.assignment.path.table]

    Planning._free_slots = free_slots  # type: ignore[method-assign] # in this process alone


class NotingCheckpoints(CheckpointFiles):
    """Says what each checkpoint holds that completes."""

    def __init__(self, files: SmallFiles, clock: Clock, notes: Notes) -> None:
        """Keep whom to tell."""
        super().__init__(files, clock)
        self._notes = notes

    def complete(
        self, ref: CheckpointRef, coordinator: RoundSnapshot, parts: Sequence[PartFile], lease: LeaseCopy | None
    ) -> int:
        """See Protocol."""
        size = super().complete(ref, coordinator, parts, lease)
        found = self._read_parts(ref, parts)
        states = [part.exchange for part in found if part.exchange is not None]
        wrong = _account(coordinator, found)
        self._notes.note(
            "checkpoint", table=coordinator.path.table, number=ref.number, wrong=wrong, **subtask.held(states)
        )
        return size


def _account(coordinator: RoundSnapshot, subtasks: Sequence[SubtaskSnapshot]) -> str:
    """Return what does not add up in a checkpoint: every record that was read is in exactly one place."""
    splits = {one.split.split_id: one.rows for one in coordinator.progress}
    for part in subtasks:
        splits |= {one.split.split_id: one.rows for one in part.progress}
        splits |= {one.result.split_id: one.result.rows for one in part.blocked}
    splits |= {result.split_id: result.rows for result in coordinator.finished}
    states = [part.exchange for part in subtasks if part.exchange is not None]
    files = sum(file.rows for state in states for file in state.files if file.kind == "data")
    opened = sum(one.held_rows for state in states for rows in state.open_rows for one in rows.segments)
    channels = sum(channel.segment.held_rows for state in states for channel in state.channels)
    read, taken = sum(splits.values()), sum(state.rows for state in states)
    left_out = sum(state.left_out for state in states)
    if read == taken + channels and taken == files + left_out + opened:
        return ""
    return (
        f"{read} records were read, {channels} wait in channels, {taken} were taken: {files} are rows of files, "
        f"{left_out} needed none, {opened} are in open files"
    )


class ForkedJobs:
    """The port `Jobs` on processes. Those of a launch die together, as in a barrier stage."""

    slots = slots_there = 64

    def __init__(self, directory: Path, zygote: Path, scenario: Scenario, number: int) -> None:
        """Start nothing yet. Arguments as of `run`."""
        self._directory = directory
        self._zygote = zygote
        self._scenario = scenario
        self._number = number
        self._notes = Notes(directory)
        self._running: dict[str, list[Child]] = {}

    def gone(self) -> str | None:
        """See `lakeward.ports.Jobs`."""
        return None

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        """See `lakeward.ports.Jobs`."""
        threading.Thread(target=self._run, args=(job, on_done), daemon=True).start()

    def launch_upkeep(self, job: UpkeepJob, on_done: Callable[[UpkeepJobEnd], None]) -> None:
        """See `lakeward.ports.Jobs`; the lake of these tests has no upkeep of its own."""
        on_done(UpkeepJobEnd(reason=f"{job.group}: not run here"))

    def cancel(self, job: JobSpec | UpkeepJob) -> None:
        """See `lakeward.ports.Jobs`: their link tells them; those that do not hear it are killed."""
        timer = threading.Timer(_CANCEL_S, self._kill, args=(self._running.get(job.group, []),))
        timer.daemon = True
        timer.start()

    def _run(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        try:
            children = self._fork(job)
            reason = self._wait(children)
        except OSError as error:
            reason = str(error)
        on_done(reason)

    def _fork(self, job: JobSpec) -> list[Child]:
        table = job.pool.rpartition(".")[2]
        children: list[Child] = []
        for number in range(job.subtasks):
            place = SubtaskPlace(job, number, 0)
            name = f"{table}-{self._number}-{job.job_attempt}-{number}"
            log = self._directory / f"{name}.log"
            arguments = (place, self._directory, self._scenario)
            children.append(fork(self._zygote, subtask.run, *arguments, log=log, group=os.getpgrp()))
        self._running[job.group] = children
        self._notes.note("launched", table=table, launch=job.job_attempt, pids=[child.pid for child in children])
        return children

    def _wait(self, children: list[Child]) -> str | None:
        reason: str | None = None
        waiting = {child.connection: (number, child) for number, child in enumerate(children)}
        deadline = float("inf")
        while waiting:
            left = deadline - time.monotonic()
            ended, _, _ = select.select(waiting, [], [], None if left == float("inf") else max(0.0, left))
            for connection in ended:
                number, child = waiting.pop(connection)
                if child.result() is None and reason is None:
                    reason = f"subtask {number} died"
                    deadline = time.monotonic() + random.uniform(0.0, _OTHERS_S)  # noqa: S311 - a test's choice
            if time.monotonic() >= deadline:
                deadline = float("inf")
                self._kill([child for _, child in waiting.values()])
        return reason

    def _kill(self, children: list[Child]) -> None:
        for child in children:
            child.send_signal(signal.SIGKILL)
