"""The demo from its first line to its last."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lakeward.cli.open_plugins import open_history
from lakeward.clock import SystemClock
from lakeward.config.loader import load_config
from lakeward.errors import LakewardError, UsageError
from lakeward.model.dead_letters import path_of
from lakeward.observe import status_file
from lakeward.observe.format import clock_time, seconds
from lakeward.observe.format import count as number
from lakeward.observe.logs import setup_logs
from lakeward.observe.progress import show_progress
from lakeward.serve import serve
from lakeward_demo.all_tiered import all_tiered
from lakeward_demo.feed import EVENTS, FIRST_LIVE_DAY, FLIGHTS, Fed, changes_of, count, days_between, live_end
from lakeward_demo.feeder_process import FeederProcess
from lakeward_demo.flights import flights_file, read_flights
from lakeward_demo.lakes import UPKEEP
from lakeward_demo.place import SERVICE, fresh_place
from lakeward_demo.proof import prove, prove_dead_letters
from lakeward_demo.shell_lines import lakeward_line
from lakeward_demo.show_summary import Outcome, document, lines
from lakeward_demo.stage import open_stage
from lakeward_demo.tables import FLIGHTS_TABLE, load_changes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from lakeward.cli.extend import Invocation
    from lakeward.config.loaded import Loaded
    from lakeward.model.status import ServiceReport, UpkeepReport
    from lakeward_demo.feeder import FeederLine
    from lakeward_demo.place import Place
    from lakeward_demo.stage import Stage

_INTERRUPTED = 130
_UPKEEP_S = 20.0
_OWN_SECTIONS = frozenset({"source", "lake", "checkpoint"})


def run_demo(invocation: Invocation, directory: Path, days: int, source: str, lake: str) -> int:
    """Run the demo in a directory, where everything goes; so many days are fed while the service runs.

    Return 0 where the lake holds exactly what was fed, 130 where it was interrupted.

    Raises:
        UsageError: the directory is somebody else's, or the data are not installed.
        LakewardError: a part failed, or the lake is not what was fed.
    """
    _check_flags(invocation)
    file = flights_file()
    report = _Reporter(text=invocation.form == "text")
    with fresh_place(directory, lake) as place, open_stage(source, lake, place, report) as stage:
        return _Story(invocation, place, stage, days).run(read_flights(file))


class _Reporter:
    """Says lines to people, and nothing where the result is to be JSON."""

    def __init__(self, *, text: bool) -> None:
        self._text = text

    def __call__(self, line: str) -> None:
        if self._text:
            # Not `click.echo`, which goes past the live table that stands for standard output while it is shown.
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


class _Story:
    """One run of the demo."""

    def __init__(self, invocation: Invocation, place: Place, stage: Stage, days: int) -> None:
        self._invocation = invocation
        self._place = place
        self._stage = stage
        self._days = days
        self._text = invocation.form == "text"
        self._report = _Reporter(text=self._text)
        self._loaded = _configured(invocation, place)
        self._clock = SystemClock()
        self._start = self._clock.now()
        self._ui_named = False
        self._spared = 0
        self._upkeep: dict[tuple[str, int], UpkeepReport] = {}
        """Jobs of upkeep that have committed, by their table and when they began."""

    def run(self, year: pa.Table) -> int:
        flights = days_between(year, None, live_end(self._days))
        store = self._stage.store
        fed = self._load_history(flights)
        self._report(
            "Starting the service on Spark. Once it runs, another process feeds "
            f"{number(self._days, 'day')} from\n{FIRST_LIVE_DAY} on, about one a second; "
            f"{self._stage.cleaner} keeps only the newest KV snapshot\nof each bucket ..."
        )
        last = self._serve()
        if last is None:
            return self._interrupted()
        prove_dead_letters(self._stage.lake, EVENTS, last.unfit)
        outcome = Outcome(
            fed=fed + last.total,
            rounds=self._rounds(),
            exchanged=self._exchanged(),
            snapshots=store.snapshots(FLIGHTS_TABLE),
            spared=last.spared,
            dead_letters={str(path_of(EVENTS)): last.unfit} if last.unfit else {},
            compacted=_compacted(self._upkeep),
            leases=store.leases(),
            proof=prove(self._stage.lake, self._stage.tables, flights),
            seconds=self._clock.now() - self._start,
        )
        shown = lines(self._place, self._stage, outcome)
        self._invocation.output.show(document(self._place, self._stage, outcome), *shown)
        return 0

    def _load_history(self, flights: pa.Table) -> Fed:
        store, tables = self._stage.store, self._stage.tables
        changes = changes_of(days_between(flights, None, FIRST_LIVE_DAY))
        before = self._clock.now()
        load_changes(store, tables, changes)
        for table in tables:
            store.settle(table)
        taken = store.snapshots(FLIGHTS_TABLE).taken
        fed = count(changes)
        self._report(
            f"History before {FIRST_LIVE_DAY}: {number(fed.inserts, 'flight')} with {number(taken, 'KV snapshot')} "
            f"in {FLIGHTS},\n{number(fed.events, 'row')} in {EVENTS}, loaded in {seconds(self._clock.now() - before)}."
        )
        return fed

    def _serve(self) -> FeederLine | None:
        """Run the service until everything that the feeder feeds is tiered; None where a signal ended it before."""
        done = False
        tiered_at: float | None = None
        stage = (self._stage.source, self._stage.address)
        with FeederProcess(self._place, stage, self._days, self._on_line) as feeding:

            def until() -> bool:
                nonlocal done, tiered_at
                self._look()
                feeding.start()
                if tiered_at is None and feeding.is_complete() and all_tiered(self._stage, self._loaded, self._clock):
                    tiered_at = self._clock.now()
                done = tiered_at is not None and self._is_kept_up(tiered_at)
                return done

            shown = show_progress(self._loaded.settings, self._clock, on=self._text)
            code = serve(self._loaded, once=False, final=False, progress=shown, until=until)
            if code:
                message = "demo: the service ended before everything was tiered"
                raise LakewardError(message)
            return feeding.last if done else None

    def _on_line(self, line: FeederLine) -> None:
        fed = line.day_fed
        time = clock_time(self._clock.wall_ms())
        changes = (number(fed.inserts, "insert"), number(fed.updates, "update"), number(fed.deletes, "delete"))
        self._report(f"{time} fed {line.day}: {', '.join(changes)}")
        if line.spared > self._spared:
            self._spared = line.spared
            self._report(
                f"{time} clean-up has spared {number(line.spared, 'old KV snapshot')}: leased, a round reads them"
            )

    def _look(self) -> None:
        """Look at the newest report for what is said of it, now or in the end."""
        report = status_file.read(str(self._place.state), SERVICE)
        if report is None:
            return
        self._name_ui(report)
        for table in report.tables:
            if table.upkeep is not None and table.upkeep.state == "committed":
                self._upkeep[table.path, table.upkeep.started_ms] = table.upkeep

    def _is_kept_up(self, tiered_at: float) -> bool:
        """Return whether files were merged, which is waited for a while: it begins once no round needs the slots."""
        is_due = self._loaded.settings.lake.type in UPKEEP and not self._upkeep
        return not is_due or self._clock.now() - tiered_at > _UPKEEP_S

    def _name_ui(self, report: ServiceReport) -> None:
        """Name Spark's own pages, once; the live table of a terminal does so anyway."""
        if report.spark_ui and not self._ui_named and not sys.stdout.isatty():
            self._report(f"While it runs, Spark's own pages show a job for each round: {report.spark_ui}")
        self._ui_named = True

    def _rounds(self) -> dict[str, int]:
        report = status_file.read(str(self._place.state), SERVICE)
        return {table.path: table.rounds for table in report.tables} if report is not None else {}

    def _interrupted(self) -> int:
        if self._stage.lasts:
            self._report("Interrupted. The service goes on where it stopped with:")
            self._report(f"  {lakeward_line('run --once', self._place.config)}")
        else:
            self._report("Interrupted. The private cluster is gone with it.")
        return _INTERRUPTED

    def _exchanged(self) -> dict[str, int]:
        """Return the bytes that the rounds of each table exchanged; of very many rounds, those of the newest."""
        found: dict[str, int] = {}
        for one in open_history(self._loaded).read():
            if one.exchange is not None:
                found[one.table] = found.get(one.table, 0) + one.exchange.sent_bytes
        return found


def _compacted(upkeep: Mapping[tuple[str, int], UpkeepReport]) -> dict[str, tuple[int, int]]:
    """Return by table how many files were merged in all, and into how many."""
    found: dict[str, tuple[int, int]] = {}
    for (table, _), one in sorted(upkeep.items()):
        files, after = found.get(table, (0, 0))
        found[table] = files + one.files, after + one.files_after
    return found


def _check_flags(invocation: Invocation) -> None:
    for key in invocation.flags:
        if key.partition(".")[0] in _OWN_SECTIONS or key == "service.name":
            message = f"flag --set {key}: the demo says itself where its data lie; expected another section"
            raise UsageError(message)


def _configured(invocation: Invocation, place: Place) -> Loaded:
    """Load the demo's own configuration; the environment is left out, as it may be meant for another service."""
    loaded = load_config(place.config, {}, invocation.flags)
    observe = loaded.settings.observe
    setup_logs(observe.log, "debug" if invocation.debug else observe.level)
    return loaded
