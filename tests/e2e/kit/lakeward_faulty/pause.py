"""Pause a process while it does not hold the embedded store's write lock, if it has one: `pause.py PID STORE_DB`.

SIGSTOP stops all threads wherever they are. One in the middle of a write transaction would keep SQLite's lock for as
long as the pause lasts, and a service beside it could not even start: true of SQLite, and nothing that these tests ask.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from lakeward_testing.waiting import LIMIT_S, wait_until


def pause(pid: int, store: Path) -> None:
    """Send SIGSTOP with the lock in our own hand; it is given back once all threads of the process stand still."""
    if not store.exists():
        _stop(pid)
        return
    with closing(sqlite3.connect(store, timeout=LIMIT_S, isolation_level=None)) as sql:
        sql.execute("BEGIN IMMEDIATE")
        _stop(pid)
        sql.execute("ROLLBACK")


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _stands_still(pid), "all threads to stand still")


def _stands_still(pid: int) -> bool:
    return all(_state(task) in "TtZX" for task in Path(f"/proc/{pid}/task").iterdir())


def _state(task: Path) -> str:
    """Return the letter of a thread's state; X, as the system says of a dead one, where it is gone."""
    try:
        return (task / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


if __name__ == "__main__":
    pause(int(sys.argv[1]), Path(sys.argv[2]))
