"""Named points of the main path, and what happens there: a test arms a point by writing a file.

`<faults>/once/<point>` holds an action that is taken by the first process that gets there (the file is moved to
`fired/`, so it happens once, whichever process asks); `<faults>/always/<point>` one that is taken each time. The
directory comes by the environment, so Spark's workers know it too; they learn the driver's process id from a file.

Actions: `kill-driver`, `kill-executor`, `kill-self`, `stop-driver`, `stop-self` (SIGKILL and SIGSTOP), `raise TEXT`,
`wait` (until the test writes `go/<point>`), `sleep SECONDS`, or a word that only the caller understands.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FAULTS = "LAKEWARD_TEST_FAULTS"
_PAUSE = Path(__file__).with_name("pause.py")
_WAIT_S = 120.0
_TURN_S = 0.02


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
        case "kill-driver":
            os.kill(driver_pid(), signal.SIGKILL)
            time.sleep(_WAIT_S)
        case "kill-executor":
            os.kill(_executor_pid(), signal.SIGKILL)
            time.sleep(_WAIT_S)
        case "kill-self":
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(_WAIT_S)
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


def _executor_pid() -> int:
    """Return the process id of the Java process that this Python worker belongs to."""
    pid = os.getppid()
    while Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() != "java":
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
        pid = int(status.rpartition(")")[2].split()[1])
    return pid


def _folder() -> Path | None:
    text = os.environ.get(FAULTS)
    return Path(text) if text else None


def _take(folder: Path, point: str) -> str:
    fired = folder / "fired" / point
    try:
        (folder / "once" / point).rename(fired)
    except FileNotFoundError:
        always = folder / "always" / point
        return always.read_text(encoding="utf-8") if always.exists() else ""
    return fired.read_text(encoding="utf-8")


def _stop(pid: int) -> None:
    # By another process, which waits until all threads stand still: this one may be among them.
    store = Path(os.environ[FAULTS]).parent / "store" / "store.db"
    subprocess.run([sys.executable, str(_PAUSE), str(pid), str(store)], check=True)


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not file.exists():
        if time.monotonic() > deadline:
            message = f"nobody wrote {file}"
            raise ArmedError(message)
        time.sleep(_TURN_S)
