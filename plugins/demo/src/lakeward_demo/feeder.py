"""The process that feeds the days that follow: `python -m lakeward_demo.feeder SOURCE ADDRESS DAYS`.

It begins when a line comes on standard input, says what it does as JSON lines on standard output, and ends early when
standard input is closed: so it never outlives the demo. Ctrl-C on a terminal reaches it too, and is the demo's to
answer.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from lakeward.clock import SystemClock
from lakeward_demo.feed import FIRST_LIVE_DAY, Fed, changes_of, count, days_between, live_end, slices
from lakeward_demo.flights import flights_file, read_flights
from lakeward_demo.stage import open_store
from lakeward_demo.store import EMBEDDED
from lakeward_demo.tables import ALL_TABLES, EVENTS_TABLE, FLIGHTS_TABLE, load_changes, unfit_events

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward_demo.store import DemoStore, DemoTable, SnapshotKey

DAY_S = 0.8
UNFIT_EVERY = 7
"""Days from one event that fits no lake table to the next."""
PARTS = 4
"""Loads of one day: people see rows arrive all the time, and the clean-up runs after each."""


class FeederLine(msgspec.Struct, frozen=True):
    """What the feeder has done so far. `spared` counts superseded snapshots that a lease kept from the clean-up.

    `unfit` counts the events that fit no lake table; they are not in `total`.
    """

    day: str
    day_fed: Fed
    total: Fed
    snapshots_taken: int
    snapshots_deleted: int
    spared: int
    unfit: int
    is_complete: bool = False


class Feeder:
    """Feeds day after day."""

    def __init__(
        self, store: DemoStore, tables: tuple[DemoTable, ...], stop: threading.Event, *, unfit: bool = False
    ) -> None:
        """Keep what it works with: the store holds the history; `stop` is set when it is to end early.

        With `unfit` some days have an event that fits no lake table.
        """
        self._store = store
        self._tables = tables
        self._stop = stop
        self._feeds_unfit = unfit
        self._unfit = 0
        self._clock = SystemClock()
        self._spared: set[SnapshotKey] = set()
        self._total = Fed()

    def run(self, flights: pa.Table, days: int) -> None:
        """Feed so many days of all flights from `FIRST_LIVE_DAY` on, one each `DAY_S` seconds, and say so."""
        start = self._clock.now()
        for number in range(days):
            day = FIRST_LIVE_DAY + timedelta(days=number)
            changes = changes_of(days_between(flights, day, live_end(number + 1)))
            for part, rows in enumerate(slices(changes, PARTS)):
                self._wait_until(start + (number + part / PARTS) * DAY_S)
                if self._stop.is_set():
                    return
                load_changes(self._store, self._tables, rows)
                self._spared |= self._store.superseded(FLIGHTS_TABLE)
            if self._feeds_unfit and not number % UNFIT_EVERY:
                self._store.load(EVENTS_TABLE, unfit_events(day))
                self._unfit += 1
            fed = count(changes)
            self._total += fed
            self._report(day.isoformat(), fed, is_complete=number + 1 == days)

    def _wait_until(self, due: float) -> None:
        self._stop.wait(max(0.0, due - self._clock.now()))

    def _report(self, day: str, fed: Fed, *, is_complete: bool) -> None:
        snapshots = self._store.snapshots(FLIGHTS_TABLE)
        taken, deleted, spared = snapshots.taken, snapshots.deleted, len(self._spared)
        line = FeederLine(day, fed, self._total, taken, deleted, spared, self._unfit, is_complete)
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()


def main(source: str, address: str, days: int) -> None:
    """Feed a stage's store until so many days are in or standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    go, stop = threading.Event(), threading.Event()
    threading.Thread(target=_watch_parent, args=(go, stop), name="parent", daemon=True).start()
    flights = read_flights(flights_file())
    with closing(open_store(source, address)) as store:
        go.wait()
        Feeder(store, ALL_TABLES, stop, unfit=source == EMBEDDED).run(flights, days)


def _watch_parent(go: threading.Event, stop: threading.Event) -> None:
    # Not through `sys.stdin`: its lock, held by a waiting thread, would be in the way of the interpreter's end.
    while os.read(sys.stdin.fileno(), 1):
        go.set()
    stop.set()
    go.set()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
