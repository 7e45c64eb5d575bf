"""The directory of a demo: made afresh, recognised by its marker, with a configuration as anybody would write it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lakeward.clock import SystemClock
from lakeward.errors import StorageError, UsageError
from lakeward.observe import status_file

SERVICE = "demo"
_MARKER = ".lakeward-demo"
_OURS = ("store", "warehouse", "lakeward-state", "lakeward.toml", "duckdb", "feeder.log", _MARKER)
"""All that a demo makes; nothing else in the directory is ever touched."""
_CONFIG = f"""\
# The configuration of `lakeward demo`. All keys, units and defaults: `lakeward config show --config THIS-FILE`.

[service]
name = "{SERVICE}"
poll_s = 0.5               # new rows are fed all the time

[source]
type = "embedded"
path = "store"

[lake]
type = "iceberg"
warehouse = "warehouse"

[lease]
backend = "fluss"          # a lease with an id that survives a restart; `lakeward plugins` lists the others

[spark]
master = "local[2]"
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a demo lies."""

    root: Path

    @property
    def store(self) -> Path:
        """Directory of the embedded store."""
        return self.root / "store"

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


def make_place(root: Path) -> Place:
    """Make the directory of a demo, with its configuration; what an earlier demo left there is removed.

    Args:
        root: the directory; missing, empty or of an earlier demo.

    Returns:
        The place.

    Raises:
        UsageError: the directory holds something else, or a demo is running in it.
        StorageError: it cannot be written.
    """
    place = Place(root)
    try:
        if root.is_dir() and any(root.iterdir()):
            _empty(place)
        root.mkdir(parents=True, exist_ok=True)
        (root / _MARKER).write_text("made by `lakeward demo`, which may empty this directory\n", encoding="utf-8")
        place.config.write_text(_CONFIG, encoding="utf-8")
    except OSError as error:
        message = f"{error.filename or root}: cannot be written ({error.strerror or error})"
        raise StorageError(message) from error
    return place


def _empty(place: Place) -> None:
    if not (place.root / _MARKER).is_file():
        message = (
            f"--dir {place.root}: expected a directory that is missing, empty or of an earlier demo, found other files"
        )
        raise UsageError(message)
    report = status_file.read(str(place.state), SERVICE)
    if report is not None and status_file.is_running(report, SystemClock().wall_ms()):
        message = f"--dir {place.root}: a demo is running in it (process {report.pid}); name another directory"
        raise UsageError(message)
    # The marker goes last: a demo that is interrupted here can still be started again.
    for name in _OURS:
        path = place.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
