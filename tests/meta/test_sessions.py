"""The sessions in the docs, typed again: what the commands print today is what the pages show."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeward.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SESSIONS = {"README.md": "## Use it", "docs/how-to/operate.md": "## A suspended table, from first to last"}
"""The section of each page that is a session: what is in its blocks is done from the first to the last."""
BLOCK = re.compile(r"^```(sh|python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
SERVICE = "lakeward run &"
NOT_TYPED = ("python3 -m venv ", "pip install ")
LOOKS = ("lakeward tables", "lakeward rounds", "lakeward plan", "lakeward verify")
CHANGES = ("lakeward tables resume", "lakeward tables tier-now")
OF_THIS_RUN = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b[\d.]+ (?:s|min|h)(?: \d+ (?:s|min))?\b"), "SPAN"),
    (re.compile(r"\d[\d.,]* (?:B|KiB)\b"), "SIZE"),
    (re.compile(r"\(\S+ rows/s\)"), "PACE"),
    (re.compile(r"\b\d+-\d+-\d+\b"), "ROUND"),
    (re.compile(r"process \d+|http://127\.0\.0\.1:\d+|snapshot \d+|Spark \d[\d.]+"), "OF-THIS-PROCESS"),
    (re.compile(r"missed by SPAN|\bkept\b"), "PROMISE"),
    (re.compile(r"(?:job|commit|launch|lease|enumerate) SPAN"), "PHASE"),
    (re.compile(r"(?<!-)\b\d{3,}\b"), "BYTES"),
    (re.compile(r"\bidle\b"), "committed"),
    (re.compile(r" +"), " "),
)
"""What differs from run to run, and the width of columns; the sessions count rows by ones."""
PATIENCE_S = 120.0


def steady(text: str) -> str:
    """Return what a command prints each time."""
    for found, stands_for in OF_THIS_RUN:
        text = found.sub(stands_for, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def is_look(command: str) -> bool:
    """Return whether a command only reads: it may be typed again until the service is as far as the page shows."""
    return command.startswith(LOOKS) and not command.startswith(CHANGES)


class Terminal:
    """An empty directory, and a shell in it."""

    def __init__(self, directory: Path) -> None:
        """Start with nothing."""
        self._directory = directory
        self._environment = {key: text for key, text in os.environ.items() if not key.startswith("LAKEWARD_")}
        self._environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self._environment['PATH']}"
        self._services: list[subprocess.Popen[bytes]] = []

    def type(self, command: str) -> str:
        """Run a command, and return what it prints; the next one runs where it ends. A service is left running."""
        if command == SERVICE:
            with (self._directory / "service.log").open("wb") as log:
                started = subprocess.Popen(
                    ["lakeward", "run"], cwd=self._directory, env=self._environment, stdout=log, stderr=log
                )
            self._services.append(started)
            return ""
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as place:
            printed = self._run(["bash", "-euc", f"{command}\npwd > '{place.name}'"])
            self._directory = Path(place.read().strip())
        return printed

    def python(self, code: str) -> None:
        """Run a program."""
        self._run([sys.executable, "-c", code])

    def look(self, command: str, shown: str) -> str:
        """Type a command until it prints what a page shows, or time is up; return what it printed last."""
        clock = SystemClock()
        deadline = clock.now() + PATIENCE_S
        printed = self.type(command)
        while steady(printed) != steady(shown) and clock.now() < deadline:
            printed = self.type(command)
        return printed

    def close(self) -> None:
        """Stop the service."""
        for service in self._services:
            service.send_signal(signal.SIGTERM)
        for service in self._services:
            service.wait(60)

    def _run(self, words: list[str]) -> str:
        done = subprocess.run(
            words, cwd=self._directory, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{words[-1]}\n{done.stdout}"
        return done.stdout


def section(page: str) -> str:
    """Return the part of a page that is a session."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.split(r"^## ", text.partition(f"\n{SESSIONS[page]}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def play(terminal: Terminal, session: str) -> Iterator[tuple[str, str, str]]:
    """Do what a session does; yield each command with what the page shows and what it printed."""
    for language, code in BLOCK.findall(session):
        if language == "python":
            terminal.python(code)
        elif language == "sh":
            terminal.type("\n".join(line for line in code.splitlines() if not line.startswith(NOT_TYPED)))
        else:
            for command, shown in TYPED.findall(code):
                yield command, shown, terminal.look(command, shown) if is_look(command) else terminal.type(command)


@contextmanager
def opened() -> Iterator[Terminal]:
    """Open a terminal in an empty directory."""
    with tempfile.TemporaryDirectory() as directory:
        terminal = Terminal(Path(directory))
        try:
            yield terminal
        finally:
            terminal.close()


@pytest.mark.spark
@pytest.mark.parametrize("page", SESSIONS)
def test_what_commands_print_is_what_the_session_of_a_page_shows(page: str) -> None:
    with opened() as terminal:
        played = list(play(terminal, section(page)))
    assert len(played) > 3, "the page has lost its session"
    for command, shown, printed in played:
        if command.startswith("lakeward run"):  # two tables may end in either order, and not each wait is seen
            assert set(steady(shown).splitlines()) <= set(steady(printed).splitlines()), command
        else:
            assert steady(printed) == steady(shown), command


def test_what_the_readme_makes_lies_in_one_folder(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    _, code = BLOCK.findall(section("README.md"))[0]
    terminal.type("\n".join(line for line in code.splitlines() if not line.startswith("pip install ")))
    assert [each.name for each in tmp_path.iterdir()] == ["try"]


def headers(page: str) -> dict[str, set[tuple[str, ...]]]:
    """Return the names of the columns that each listing of a page has, by the command."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for language, code in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        for command, shown in TYPED.findall(code) if language == "console" else ():
            lines = [tuple(re.split(r" {2,}", line)) for line in shown.splitlines()]
            found.setdefault(command, set()).update(line for line in lines if line[0] in {"table", "ended"})
    return found


def test_the_recorded_recovery_has_the_columns_that_the_sessions_have() -> None:
    recovery, session = headers("docs/explanation/a-recovery.md"), headers("README.md")
    for command in ("lakeward tables", "lakeward rounds list"):
        known = {name for one in session[command] for name in one}
        # Nothing was complete there, and `tables` leaves out a column without a value.
        assert {name for one in recovery[command] for name in one} | {"complete up to"} == known | {"complete up to"}
