"""One run: two tables, a service, and failures as a seed says."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from lakeward_rescale import service
from lakeward_rescale.notes import Note, Notes, Orders
from lakeward_rescale.scenario import TABLES, Scenario
from lakeward_rescale.tables import fill
from lakeward_rescale.zygote import Child, fork
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_rescale.scenario import Failure
    from lakeward_rescale.tables import Tables

_LOOK_S = 0.005
_PATIENCE_S = 6.0
"""Seconds that a failure waits for its moment."""
_BOTH_S = 1.0
"""Seconds that a failure of the service waits for the second table."""


@dataclass
class Result:
    """What came of a run. It is right if `problems` is empty; it shows something if `rescaled` is not 0."""

    seed: int
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    lost: int = 0
    """Rows that the lake should hold and does not."""
    doubled: int = 0
    """Rows that the lake holds and should not."""
    launches: list[str] = field(default_factory=list)
    """`table: P` or `table: P' of P with C B in channels, R open rows`."""
    checkpoints: int = 0
    rescaled: int = 0
    """Launches that were connected after a restore of channel state and open rows from another number of subtasks."""
    spills: bool = False
    """Whether checkpoints are taken while restored rows are still written."""
    recovering: int = 0
    """Completed checkpoints that held rows of a spill."""
    missed: list[str] = field(default_factory=list)
    """Failures for which the moment never came."""


def run(seed: int, directory: Path, zygote: Path, mistake: str = "") -> tuple[Result, Tables]:
    """Do a run; the lake is looked at afterwards, see `outcome`.

    Args:
        seed: says what happens.
        directory: empty.
        zygote: its socket.
        mistake: made on purpose, see `mistakes`.

    Returns:
        What is known so far, and what the lake must hold.
    """
    started = time.monotonic()
    result, tables = _Run(replace(Scenario.of(seed), mistake=mistake), directory, zygote).run()
    result.seconds = time.monotonic() - started
    return result, tables


@dataclass
class _Table:
    """What is known of a table's rounds."""

    pids: list[int] = field(default_factory=list)
    launched: int = 0
    """Launches so far, over all services."""
    seen: dict[str, int] = field(default_factory=dict)
    """By what was noted: the launch of which it was noted last."""
    newest: Note | None = None
    """The newest checkpoint of this launch."""
    kept: dict[int, int] = field(default_factory=dict)
    """By checkpoint of this launch: bytes of spills that its parts hold."""
    restored: Note | None = None
    """What the present launch was deployed with."""


class _Run:
    def __init__(self, scenario: Scenario, directory: Path, zygote: Path) -> None:
        self._scenario = scenario
        self._directory = directory
        self._zygote = zygote
        self._draw = random.Random(scenario.seed + 1)  # noqa: S311 - a test's choice
        self._notes = Notes(directory)
        self._tables = {name: _Table() for name in TABLES}
        self._result = Result(scenario.seed, spills=scenario.during_recovery)
        self._services = 0
        self._service: Child | None = None

    def run(self) -> tuple[Result, Tables]:
        (self._directory / "scenario.json").write_text(json.dumps(asdict(self._scenario), indent=1), encoding="utf-8")
        store = EmbeddedStore.create(self._directory / "store")
        tables = fill(store, self._scenario)
        store.close()
        (self._directory / "spill").mkdir()
        self._order(0)
        self._start()
        for number, failure in enumerate(self._scenario.failures):
            self._fail(number, failure)
        self._order(len(self._scenario.failures), slow=False)
        self._finish()
        return self._result, tables

    # --- services -------------------------------------------------------------------------------------------

    def _order(self, number: int, *, slow: bool = True) -> None:
        Orders({table: sizes[number] for table, sizes in self._scenario.sizes.items()}, slow).give(self._directory)

    def _start(self, *, later: bool = False) -> None:
        log = self._directory / f"service-{self._services}.log"
        arguments = (self._directory, self._zygote, self._scenario, self._services, later)
        self._services += 1
        self._service = fork(self._zygote, service.run, *arguments, log=log, group=os.getpgrp())

    def _finish(self) -> None:
        """Let the service go on to its end; then one more start puts away what the dead ones have left."""
        self._end_service()
        self._start(later=True)
        self._end_service()

    def _end_service(self) -> None:
        assert self._service is not None
        failed = self._service.result()
        self._look()
        if failed != ():
            self._result.problems.append(f"the service ended with failed tables: {failed}")
        self._notes.note("ended")

    # --- failures -------------------------------------------------------------------------------------------

    def _fail(self, number: int, failure: Failure) -> None:
        """Wait for the moment of a failure, for each table, and let it happen; then sizes are the next ones."""
        self._notes.note("next failure", **asdict(failure))
        since = {name: table.launched for name, table in self._tables.items()}
        due: dict[str, float] = {}
        waiting, deadline = set(TABLES), time.monotonic() + _PATIENCE_S
        while waiting and time.monotonic() < deadline and self._alive:
            self._look()
            now = time.monotonic()
            for name in sorted(waiting):
                if name not in due and self._moment(failure, self._tables[name], since[name], number):
                    due[name] = now + failure.after_s
                    if failure.killed == "service":
                        deadline = min(deadline, now + _BOTH_S)
            for name in [name for name in sorted(waiting) if now >= due.get(name, now + 1)]:
                waiting.remove(name)
                if failure.killed == "subtasks":
                    self._order_table(name, number + 1)
                    self._kill_subtasks(self._tables[name], failure)
            time.sleep(_LOOK_S)
        self._result.missed += [f"{number + 1}: {name}" for name in sorted(waiting)]
        self._order(number + 1)
        if failure.killed == "service":
            self._kill_service(failure)

    def _order_table(self, name: str, number: int) -> None:
        now = Orders.read(self._directory).subtasks
        Orders(now | {name: self._scenario.sizes[name][number]}).give(self._directory)

    def _moment(self, failure: Failure, table: _Table, since: int, number: int) -> bool:
        if failure.when == "checkpoint":
            newest = table.newest
            return newest is not None and newest["channel_bytes"] > 0 and newest["open_rows"] > 0
        # The launch that restores may have begun before the failure is waited for.
        del number
        first = max(since, 2)
        return table.seen.get(failure.instant, 0) >= first

    def _kill_subtasks(self, table: _Table, failure: Failure) -> None:
        count = max(1, round(len(table.pids) * failure.share))
        victims = self._draw.sample(table.pids, min(count, len(table.pids)))
        self._notes.note("kill", pids=victims)
        for pid in victims:
            _kill(pid)

    def _kill_service(self, failure: Failure) -> None:
        """Kill the service; its subtasks die with it, or a little later."""
        assert self._service is not None
        self._notes.note("kill service", pids=[self._service.pid])
        self._service.send_signal(signal.SIGKILL)
        if self._service.result() is not None:
            return  # it had ended
        if failure.linger_s == 0.0:
            self._kill_all()
        self._start()
        if failure.linger_s:
            old = [pid for table in self._tables.values() for pid in table.pids]
            time.sleep(failure.linger_s)
            self._notes.note("kill", pids=old)
            for pid in old:
                _kill(pid)

    def _kill_all(self) -> None:
        self._look()
        for table in self._tables.values():
            for pid in table.pids:
                _kill(pid)

    @property
    def _alive(self) -> bool:
        return self._service is not None and self._service.alive

    # --- what is seen ---------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read what was noted."""
        for note in self._notes.fresh():
            table = self._tables.get(note.get("table", ""))
            if table is None:
                continue
            match note["what"]:
                case "launched":
                    table.pids, table.launched = note["pids"], table.launched + 1
                    table.newest = table.restored = None
                    table.kept = {}
                case "kept":
                    table.kept[note["number"]] = table.kept.get(note["number"], 0) + note["spill_bytes"]
                case "deployed" if table.restored is None:
                    table.restored = note
                    self._note_launch(note, len(table.pids))
                case "connected" if table.restored is not None:
                    held, table.restored = table.restored, {**table.restored, "channel_bytes": 0}
                    another = held["of"] not in {0, len(table.pids)}
                    self._result.rescaled += bool(another and held["channel_bytes"] and held["open_rows"])
                case "checkpoint":
                    table.newest = note
                    if note["wrong"]:
                        self._result.problems.append(f"checkpoint {note['number']} of {note['table']}: {note['wrong']}")
                    self._result.checkpoints += 1
                    self._result.recovering += table.kept.get(note["number"], 0) > 0
                case _:
                    pass
            table.seen[note["what"]] = table.launched

    def _note_launch(self, note: Note, subtasks: int) -> None:
        text = f"{note['table']}: {subtasks}"
        if note["of"]:
            text += f" of {note['of']} with {note['channel_bytes']} B in channels, {note['open_rows']} open rows"
        self._result.launches.append(text)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
