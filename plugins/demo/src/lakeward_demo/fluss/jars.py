"""Finds the jars of a Fluss cluster by their Maven coordinates, with the Ivy that pyspark carries; cached by user.

Ivy's default repository is Maven Central. A site with a repository of its own points `LAKEWARD_IVY_SETTINGS` at an
ivysettings.xml.
"""

from __future__ import annotations

import importlib.util
import os
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from lakeward.errors import LakewardError

FLUSS_VERSION = "0.9.1-incubating"
PAIMON_VERSION = "1.3.1"
_LOG4J = "2.24.3"
_HADOOP = "3.3.6"
_TIMEOUT_S = 300
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Parent POMs of Fluss's lake plugins are not published, and nothing here needs the dependencies that a POM names.
_SETTINGS = """<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>
"""


class JarsMissingError(LakewardError):
    """The jars of a cluster cannot be had here; the message says why."""

    code = "LW-320"


@dataclass(frozen=True, slots=True)
class Jar:
    """Maven coordinates of one jar."""

    group: str
    artifact: str
    version: str

    @property
    def file(self) -> str:
        """The jar's file name."""
        return f"{self.artifact}-{self.version}.jar"


SERVER_JARS = (
    Jar("org.apache.fluss", "fluss-server", FLUSS_VERSION),
    *(Jar("org.apache.logging.log4j", f"log4j-{part}", _LOG4J) for part in ("api", "core", "slf4j-impl", "1.2-api")),
)
"""Coordinator, tablet server and ZooKeeper in one jar, and the logging that it leaves to its class path."""
HADOOP_JARS = (
    Jar("org.apache.hadoop", "hadoop-client-api", _HADOOP),
    Jar("org.apache.hadoop", "hadoop-client-runtime", _HADOOP),
    Jar("commons-logging", "commons-logging", "1.2"),
)
"""What every lake of a cluster needs, whatever its catalog (fluss.md, "Clusters for tests")."""
LAKE_JARS: Mapping[str, tuple[Jar, ...]] = {
    "iceberg": (Jar("org.apache.fluss", "fluss-lake-iceberg", FLUSS_VERSION), *HADOOP_JARS),
    "paimon": (
        Jar("org.apache.fluss", "fluss-lake-paimon", FLUSS_VERSION),
        Jar("org.apache.paimon", "paimon-bundle", PAIMON_VERSION),
        *HADOOP_JARS,
    ),
}
"""What a coordinator needs to create tables of a lake, by `datalake.format`."""


def find_jars(jars: tuple[Jar, ...], java: Path, cache: Path | None = None) -> tuple[Path, ...]:
    """Return the jars as files, one each, in their order, fetched once.

    `java` is a Java binary, to run Ivy with. `cache` is where they are kept; default: `~/.cache/lakeward/jars`.

    Raises:
        JarsMissingError: some are not there and cannot be fetched, or others could have put theirs; says why.
    """
    cache = cache or jar_cache()
    _refuse_others(cache)
    missing = [jar for jar in jars if not (cache / jar.file).is_file()]
    if missing:
        _fetch(missing, java, cache)
    return tuple(cache / jar.file for jar in jars)


def jar_cache() -> Path:
    """Return the user's own cache of jars."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "lakeward" / "jars"


def _refuse_others(cache: Path) -> None:
    """Run no jar that another user could have put there: what is in the cache is started as this user."""
    try:
        status = cache.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, os.getuid()) or status.st_mode & _OTHERS_WRITE:
        found = f"owner {status.st_uid}, mode {stat.filemode(status.st_mode)}"
        message = f"{cache}: expected a directory of user {os.getuid()} that nobody else may write to, found {found}"
        raise JarsMissingError(message)


def _fetch(missing: list[Jar], java: Path, cache: Path) -> None:
    ivy = _ivy()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        place = Path(scratch)
        command = [str(java), "-jar", str(ivy), "-settings", str(_settings(place)), "-cache", f"{place}/ivy"]
        command += ["-ivy", str(_module(place, missing)), "-types", "jar"]
        command += ["-retrieve", f"{place}/[artifact]-[revision].[ext]"]
        try:
            done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as failed:
            message = f"jars {_named(missing)}: Ivy could not be run: {failed}"
            raise JarsMissingError(message) from failed
        for jar in missing:
            if not (place / jar.file).is_file():
                name = f"{jar.group}:{jar.artifact}:{jar.version}"
                message = f"jar {name}: expected in {cache}, and Ivy cannot fetch it: {_last_line(done.stdout)}"
                raise JarsMissingError(message)
            # Another process may have fetched the same meanwhile: either file will do.
            (place / jar.file).replace(cache / jar.file)


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec is not None else None
    found = [jar for place in places or () for jar in Path(place).glob("jars/ivy-*.jar")]
    if not found:
        message = "jars of a Fluss cluster: expected pyspark, whose Ivy fetches them, found none installed"
        raise JarsMissingError(message)
    return found[0]


def _settings(place: Path) -> Path:
    if own := os.environ.get("LAKEWARD_IVY_SETTINGS"):
        return Path(own)
    settings = place / "ivysettings.xml"
    settings.write_text(_SETTINGS, encoding="utf-8")
    return settings


def _module(place: Path, jars: list[Jar]) -> Path:
    lines = [
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        ' transitive="false"/>'
        for jar in jars
    ]
    module = place / "ivy.xml"
    head = '<ivy-module version="2.0"><info organisation="lakeward" module="cluster"/><dependencies>'
    module.write_text("\n".join([head, *lines, "</dependencies></ivy-module>"]), encoding="utf-8")
    return module


def _named(jars: list[Jar]) -> str:
    return ", ".join(jar.file for jar in jars)


def _last_line(output: str) -> str:
    """Return the line of Ivy's output that says most."""
    lines = [line.strip(" \t:") for line in output.splitlines()]
    telling = [line for line in lines if "not found" in line or "Exception" in line or "ERROR" in line]
    return (telling or [line for line in lines if line] or ["it said nothing"])[-1]
