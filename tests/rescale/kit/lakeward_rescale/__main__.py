"""Runs with failures, two at a time: `python -m lakeward_rescale --runs 3000`."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward_rescale import outcome, run
from lakeward_rescale.mistakes import MISTAKES
from lakeward_rescale.run import Result
from lakeward_rescale.zygote import Child, fork, start, stop

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOK_S = 0.05
_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of its own is made in it
"""No machine loses its power here: what is written needs no disk."""
_DUMP_S = 1.0
ENOUGH = 0.5
"""Share of the runs that have to show something."""
FEW = 5
"""Runs that spill of which none may have completed a checkpoint in a recovery."""


class Loop:
    """Runs, some at a time."""

    def __init__(self, place: Path, zygote: Path, timeout_s: float, *, keep: bool, mistake: str = "") -> None:
        """Keep where runs lie, how long one may take, and what mistake they make."""
        self._place = place
        self._zygote = zygote
        self._timeout_s = timeout_s
        self._keep = keep
        self._mistake = mistake
        self.results: list[Result] = []
        self.hung = 0

    def run(self, seeds: Iterator[int], jobs: int) -> None:
        """Do all runs."""
        running: list[tuple[int, Path, Child, float]] = []
        try:
            while True:
                while len(running) < jobs and (seed := next(seeds, None)) is not None:
                    directory = self._place / f"seed-{seed}"
                    shutil.rmtree(directory, ignore_errors=True)
                    directory.mkdir(parents=True)
                    arguments = (seed, directory, self._zygote, self._mistake)
                    child = fork(self._zygote, run.run, *arguments, log=directory / "run.log")
                    running.append((seed, directory, child, time.monotonic()))
                if not running:
                    return
                running = [one for one in running if not self._ended(*one)]
                time.sleep(_LOOK_S)
        finally:
            for _, _, child, _ in running:
                _end_group(child)

    def _ended(self, seed: int, directory: Path, child: Child, started: float) -> bool:
        spent = time.monotonic() - started
        if child.alive and spent < self._timeout_s:
            return False
        if child.alive:
            self.hung += 1
            result = Result(seed, spent, [f"hung: not over after {spent:.0f} s"])
            _end_group(child, dump=True)
        else:
            found = child.result()
            _end_group(child)
            if found is None:
                result = Result(seed, spent, ["it ended with an error, see run.log"])
            else:
                result, tables = found
                outcome.look(result, tables, directory)
        self.results.append(result)
        _say(_line(result, directory))
        if not result.problems and not self._keep:
            shutil.rmtree(directory, ignore_errors=True)
        return True


def _end_group(child: Child, *, dump: bool = False) -> None:
    """Kill all processes of a run; first let them write where they stand."""
    try:
        if dump:
            os.killpg(child.pid, signal.SIGUSR1)
            time.sleep(_DUMP_S)
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _line(result: Result, directory: Path) -> str:
    words = "; ".join(result.launches)
    text = f"seed {result.seed}: {result.seconds:.1f} s, {result.checkpoints} checkpoints, {result.rescaled} rescaled; "
    text += f"{result.recovering} checkpoints in recoveries; " if result.spills else ""
    text += words
    if result.missed:
        text += f"; never came: {', '.join(result.missed)}"
    for problem in result.problems:
        text += f"\n  WRONG {problem}"
    if result.problems:
        text += f"\n  kept in {directory}"
    return text


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def summary(loop: Loop) -> tuple[str, bool]:
    """Return the last line, and whether all is well."""
    results = loop.results
    lost = sum(result.lost > 0 for result in results)
    doubled = sum(result.doubled > 0 for result in results)
    wrong = sum(bool(result.problems) for result in results)
    shown = sum(result.rescaled > 0 for result in results)
    spilling = [result for result in results if result.spills]
    recovering = sum(result.recovering > 0 for result in spilling)
    seconds = sum(result.seconds for result in results) / max(1, len(results))
    text = (
        f"{len(results)} runs: {lost} lost rows, {doubled} doubled rows, {loop.hung} hung, {wrong} wrong in all; "
        f"{shown} restored channel state with another number of subtasks, "
        f"{sum(result.rescaled for result in results)} times; "
        f"{recovering} of the {len(spilling)} that spill completed checkpoints with spilled rows in a recovery, "
        f"{sum(result.recovering for result in spilling)} times; {seconds:.1f} s a run"
    )
    enough = shown >= ENOUGH * len(results) and (recovering > 0 or len(spilling) < FEW)
    return text, wrong == 0 and enough and bool(results)


def main() -> int:
    """Do what the command line says; return 1 if anything was lost, doubled or hung, or if too little was shown."""
    parser = argparse.ArgumentParser(prog="python -m lakeward_rescale", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each further one has the next")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds after which a run counts as hung")
    parser.add_argument("--keep", action="store_true", help="keep the directory of each run, not of wrong ones alone")
    parser.add_argument("--directory", type=Path, help="where runs lie; default: a new one in memory")
    parser.add_argument("--mistake", default="", choices=sorted(MISTAKES), help="to be made on purpose")
    options = parser.parse_args()
    place = options.directory or Path(tempfile.mkdtemp(prefix="lakeward-rescale-", dir=_MEMORY))
    place.mkdir(parents=True, exist_ok=True)
    socket = place / f"zygote-{os.getpid()}"
    process = start(socket)
    loop = Loop(place, socket, options.timeout, keep=options.keep, mistake=options.mistake)
    began = time.monotonic()
    try:
        loop.run(iter(range(options.seed, options.seed + options.runs)), options.jobs)
    finally:
        used = stop(process)
        socket.unlink(missing_ok=True)
    text, well = summary(loop)
    _say(text)
    each, count = time.monotonic() - began, max(1, len(loop.results))
    _say(f"{each / count:.2f} s from one run to the next, {used / count:.2f} s of processor time for each")
    if well and not options.keep:
        shutil.rmtree(place, ignore_errors=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
