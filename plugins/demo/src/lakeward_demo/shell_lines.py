"""Lines for a shell that do what they say from the current directory."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def python_line(code: str, program: str = "") -> str:
    """Give code to a Python, this one by default; in double quotes where that is safe: they read better than others."""
    quoted = shlex.quote(code) if set(code) & set('"$`\\!') else f'"{code}"'
    return f"{program or _from_here(Path(sys.executable))} -c {quoted}"


def lakeward_line(words: str, config: Path) -> str:
    """Return a line that runs a command, as it is typed, of this Lakeward with a configuration file."""
    script = Path(sys.executable).with_name("lakeward")
    program = _from_here(script) if script.exists() else f"{_from_here(Path(sys.executable))} -m lakeward"
    return f"{program} {words} --config {shlex.quote(str(config))}"


def _from_here(program: Path) -> str:
    """Name a program from the current directory where it lies below that."""
    here = Path.cwd()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))
