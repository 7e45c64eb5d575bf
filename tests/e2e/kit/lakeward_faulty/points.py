"""Named points of the main path, and what happens there: a test arms a point by writing a file.

`<faults>/once/<point>` holds an action that is taken by the first process that gets there (the file is moved to
`fired/`, so it happens once, whichever process asks); `<faults>/always/<point>` one that is taken each time. The
directory comes by the environment, so Spark's workers know it too; they learn the driver's process id from a file.

Actions: `kill-driver`, `kill-jvm`, `kill-executor`, `kill-worker`, `kill-self`, `stop-driver`, `stop-self` (SIGKILL and
SIGSTOP), `raise TEXT`, `wait` (until the test writes `go/<point>`), `sleep SECONDS`, or a word that only the caller
understands. The worker is this process, or at a point of the driver the one that registered last for the table that the
point ends with; the executor is the Java process that it belongs to, the driver the one that it registered with, and
the JVM the driver's.

A victim of `once` is killed once: a point whose victim is gone, or has been killed for another point, stays armed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from lakeward_testing.waiting import LIMIT_S, wait_until

FAULTS = "LAKEWARD_TEST_FAULTS"
_PAUSE = Path(__file__).with_name("pause.py")
_KILLS = frozenset({"kill-driver", "kill-jvm", "kill-executor", "kill-worker"})
_STARTED = 19
"""Place of the time of a process' start in its status, which begins behind its name."""


class ArmedError(RuntimeError):
    """What `raise` raises: nothing that the product knows."""


def reached(point: str) -> str:
    """Do what is armed at a point.

    Args:
        point: its name, such as `lake.send`.

    Returns:
        The action, where it is the caller's own; else an empty text.
    """
    folder = _folder()
    if folder is None:
        return ""
    action = _take(folder, point)
    word, _, argument = action.partition(" ")
    match word:
        case "kill-driver" | "kill-jvm" | "kill-executor" | "kill-worker":
            os.kill(int(argument), signal.SIGKILL)
            if not _is_driver(folder) or word == "kill-driver":
                threading.Event().wait(LIMIT_S)  # who depends on the victim does nothing more
        case "kill-self":
            os.kill(os.getpid(), signal.SIGKILL)
            threading.Event().wait(LIMIT_S)
        case "stop-driver":
            _stop(driver_pid())
        case "stop-self":
            _stop(os.getpid())
        case "raise":
            raise ArmedError(argument)
        case "wait":
            _wait_for(folder / "go" / point)
        case "sleep":
            time.sleep(float(argument))
        case _:
            return action
    return ""


def note(name: str, text: str) -> None:
    """Append a line to `noted/<name>`, where the test made the folder `noted`."""
    folder = _folder()
    if folder is not None and (folder / "noted").is_dir():
        with (folder / "noted" / name).open("a", encoding="utf-8") as lines:
            lines.write(f"{text}\n")


def note_executor(name: str) -> None:
    """Append the process id of the executor that this Python worker belongs to, where the test made that folder."""
    folder = _folder()
    if folder is not None and (folder / "noted").is_dir() and (executor := _java_of(os.getpid())) is not None:
        note(name, str(executor))


def note_worker(table: str, pid: int) -> None:
    """Say that a Python worker works for a table, and for this process, which is the driver."""
    folder = _folder()
    if folder is not None:
        with (folder / f"{table}.workers").open("a", encoding="ascii") as lines:
            lines.write(f"{pid} {os.getpid()}\n")


def name_driver() -> None:
    """Say that this process is the driver."""
    folder = _folder()
    if folder is not None:
        (folder / "driver.pid").write_text(str(os.getpid()), encoding="utf-8")


def driver_pid() -> int:
    """Return the process id of the driver that started last."""
    folder = _folder()
    assert folder is not None
    return int((folder / "driver.pid").read_text(encoding="utf-8"))


def _is_driver(folder: Path) -> bool:
    return (folder / "driver.pid").exists() and driver_pid() == os.getpid()


def _victim(folder: Path, word: str, table: str) -> int | None:
    """Return the process that an action at a point of a table kills; None if there is none any more."""
    here = os.getpid()
    latest = _noted(folder, table)[::-1]
    driver: int
    worker: int | None
    if _is_driver(folder):
        driver, worker = here, next((pid for pid, of in latest if of == here and _status(pid)), None)
    else:
        driver, worker = next((of for pid, of in latest if pid == here), 0) or driver_pid(), here
    match word:
        case "kill-driver":
            return driver
        case "kill-jvm":
            return _java_below(driver)
        case "kill-executor":
            return None if worker is None else _java_of(worker)
        case _:
            return worker


def _noted(folder: Path, table: str) -> list[tuple[int, int]]:
    """Return the Python workers that have registered for a table, in order, and with which driver."""
    file = folder / f"{table}.workers"
    lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
    return [(int(worker), int(driver)) for worker, driver in map(str.split, lines)]


def _java_of(worker: int) -> int | None:
    """Return the process id of the Java process that a Python worker belongs to."""
    return next((pid for pid in _ancestors(worker) if _name(pid) == "java"), None)


def _java_below(driver: int) -> int | None:
    """Return the process id of the Java process that a driver has started."""
    running = [int(file.name) for file in Path("/proc").iterdir() if file.name.isdecimal()]
    return next((pid for pid in running if _name(pid) == "java" and driver in _ancestors(pid)), None)


def _ancestors(pid: int) -> list[int]:
    """Return the parent of a process, its parent and so on, as far as they live."""
    found: list[int] = []
    while (status := _status(pid)) is not None and int(status[1]) > 0:
        pid = int(status[1])
        found.append(pid)
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _status(pid: int) -> list[str] | None:
    """Return what the system says of a living process after its name: state, parent and so on; None without one."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    words = text.rpartition(")")[2].split()
    return None if words[0] in "ZX" else words


def _folder() -> Path | None:
    text = os.environ.get(FAULTS)
    return Path(text) if text else None


def _take(folder: Path, point: str) -> str:
    """Return the action that is armed at a point; of one that kills, with the victim's process id."""
    word, table = "", point.rpartition(".")[2]
    try:
        word = (folder / "once" / point).read_text(encoding="utf-8")
    except FileNotFoundError:
        return _always(folder, point)
    if word not in _KILLS:
        return word if _fire(folder, point) else ""
    victim = _victim(folder, word, table)
    status = None if victim is None else _status(victim)
    if status is None:
        return ""
    # The time of its start tells a process from a later one with its number.
    claim = folder / "killed" / f"{victim}-{status[_STARTED]}"
    try:
        claim.parent.mkdir(exist_ok=True)
        claim.touch(exist_ok=False)
    except FileExistsError:
        return ""
    if not _fire(folder, point):
        claim.unlink()
        return ""
    return f"{word} {victim}"


def _always(folder: Path, point: str) -> str:
    """Return what is armed for each time; empty if nothing is: a test takes it back at any time."""
    try:
        return (folder / "always" / point).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _fire(folder: Path, point: str) -> bool:
    """Take what is armed at a point, which one process can."""
    try:
        (folder / "once" / point).rename(folder / "fired" / point)
    except FileNotFoundError:
        return False
    return True


def _stop(pid: int) -> None:
    # By another process, which waits until all threads stand still: this one may be among them.
    store = Path(os.environ[FAULTS]).parent / "store" / "store.db"
    subprocess.run([sys.executable, str(_PAUSE), str(pid), str(store)], check=True)


def _wait_for(file: Path) -> None:
    wait_until(file.exists, f"{file} to be written")
