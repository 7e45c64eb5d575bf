"""The directory of a demo: made afresh, recognised by its marker, with a configuration as anybody would write it."""

from __future__ import annotations

import fcntl
import json
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.clock import SystemClock
from lakeward.errors import StorageError, UsageError
from lakeward.observe import status_file
from lakeward_demo.lakes import ICEBERG, UPKEEP
from lakeward_demo.source import FRESHNESS_S
from lakeward_demo.tables import DEAD_LETTERS, LAKE_PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVICE = "demo"
_MARKER = ".lakeward-demo"
_OURS = ("store", "cluster", "warehouse", "lakeward-state", "lakeward.toml", "duckdb", "feeder.log")
"""All that a demo makes beside its marker; nothing else in the directory is ever touched."""
_COMMON = """\
[lease]
backend = "fluss"          # a lease with an id that survives a restart; `lakeward plugins` lists the others

[spark]
master = "local[2]"
"""
_CONFIG = f"""\
# The configuration of `lakeward demo`. All keys, units and defaults: `lakeward config show --config THIS-FILE`.

[service]
name = "{SERVICE}"
poll_s = 0.5               # new rows are fed all the time

[source]
type = "embedded"
path = "store"

[lake]
type = "{{lake}}"
warehouse = "warehouse"
{{upkeep}}"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a demo lies."""

    root: Path

    @property
    def store(self) -> Path:
        """Directory of the embedded store."""
        return self.root / "store"

    @property
    def cluster(self) -> Path:
        """Directory of a private cluster: data and logs."""
        return self.root / "cluster"

    @property
    def warehouse(self) -> Path:
        """Directory of the lake."""
        return self.root / "warehouse"

    @property
    def state(self) -> Path:
        """Directory of the service's state."""
        return self.root / "lakeward-state"

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.root / "lakeward.toml"

    @property
    def feeder_log(self) -> Path:
        """What the feeding process says when it fails."""
        return self.root / "feeder.log"

    @property
    def duckdb(self) -> Path:
        """Directory of DuckDB's extensions."""
        return self.root / "duckdb"


def common_config() -> str:
    """Return the end of the configuration, which is the same for every source: lease, Spark, and mirrored tables."""
    sections = (
        f"""
[tables."{path}"]
mode = "mirror"            # its data lake is not enabled: the copy is ours alone
freshness_s = {FRESHNESS_S}
lake_partition = {json.dumps(fields)}   # partitions that the source does not have
{DEAD_LETTERS.get(path, "")}"""
        for path, fields in LAKE_PARTITIONS.items()
    )
    return "".join((_COMMON, *sections))


@contextmanager
def fresh_place(root: Path, lake: str = ICEBERG) -> Iterator[Place]:
    """Make the directory of a demo, with its configuration, and keep it from other demos until the end.

    What an earlier demo left there is removed. The directory is missing, empty or of an earlier demo.

    Yields:
        The place.

    Raises:
        UsageError: the directory holds something else, or a demo or its service is running in it.
        StorageError: it cannot be written.
    """
    place = Place(root)
    with ExitStack() as held:
        try:
            held.enter_context(_taken(place))
            _empty(place)
            config = _CONFIG.format(lake=lake, upkeep=UPKEEP.get(lake, ""))
            place.config.write_text(f"{config}\n{common_config()}", encoding="utf-8")
        except OSError as error:
            message = f"{error.filename or root}: cannot be written ({error.strerror or error})"
            raise StorageError(message) from error
        yield place


@contextmanager
def _taken(place: Place) -> Iterator[None]:
    """Hold the lock on the marker; a demo that was killed holds none."""
    marker = place.root / _MARKER
    if place.root.is_dir() and any(place.root.iterdir()) and not marker.is_file():
        message = (
            f"--dir {place.root}: expected a directory that is missing, empty or of an earlier demo, found other files"
        )
        raise UsageError(message)
    place.root.mkdir(parents=True, exist_ok=True)
    with marker.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"--dir {place.root}: a demo is running in it; name another directory"
            raise UsageError(message) from error
        file.write("Made by `lakeward demo`, which may empty this directory.\n")
        file.flush()
        yield


def _empty(place: Place) -> None:
    report = status_file.read(str(place.state), SERVICE)
    if report is not None and status_file.is_running(report, SystemClock().wall_ms()):
        message = f"--dir {place.root}: a service is running on it (process {report.pid}); name another directory"
        raise UsageError(message)
    for name in _OURS:
        path = place.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
