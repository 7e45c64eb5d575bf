"""Opens the catalog, and sends commits: once, with Lakeward's own requirements, without the library's retries.

`Transaction.commit` retries and cleans up, and may thereby delete the manifest list of a commit that landed after all
(measured; iceberg.md, "Fencing a commit"). `Catalog.commit_table` does neither.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pyiceberg.catalog import CatalogType, load_catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    UnauthorizedError,
)
from sqlalchemy import URL, create_engine, inspect, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError

from lakeward.errors import ConfigError, LakeAwayError, LakeError, OutcomeUnknownError, StorageError
from lakeward.local_files import refusal
from lakeward.model.near_names import did_you_mean
from lakeward.model.secrets import mask_uri
from lakeward_lake_iceberg.catalog_away import away, short
from lakeward_lake_iceberg.offsets import COPIED_SNAPSHOT
from lakeward_lake_iceberg.sql import LineageSqlCatalog
from lakeward_lake_iceberg.storage import local_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from sqlalchemy import Engine

    from lakeward.model.tables import TablePath
    from lakeward_lake_iceberg.options import IcebergOptions

_SQLITE = "sqlite:///"
_REST = "lakeward_lake_iceberg.rest.TimedRestCatalog"
_OPEN_TRIES = 20
_REACHED_BY_URI = ("rest", "hive")


class Sent(Enum):
    """A catalog's answer to a commit; an unknown outcome is an error instead.

    A conflict does not prove that the commit did not land: a proxy may have sent the request twice, and the answer may
    be the second one's (see `fate`).
    """

    LANDED = "landed"
    CONFLICT = "conflict"


class Fate(Enum):
    """What became of a snapshot that was sent, as the table shows it."""

    LANDED = "landed"
    LOST = "lost"
    """It is not there and can no longer land: main has moved on from the snapshot that it was built on."""
    OPEN = "open"
    """It is not there; a request that is still in transit could land."""


class CatalogClient:
    """One pyiceberg catalog, usable from several threads and beside other processes.

    A SQL catalog that does not exist is created when it is first written to, not when it is only read.
    """

    def __init__(self, options: IcebergOptions) -> None:
        """Open it if it is there.

        Raises:
            ConfigError: an option does not fit.
            StorageError: the warehouse cannot be written.
        """
        self._options = options
        self.warehouse = warehouse_uri(options)
        self.properties = _properties(options, self.warehouse)
        self._lock = threading.Lock()
        self._opened: Catalog | None = None
        if self.is_missing:
            _check_can_be_made(_sqlite_file(self.properties), self.warehouse)
        else:
            self._opened = _open(options, self.properties)

    @property
    def catalog(self) -> Catalog:
        """The catalog; it is made if it is missing.

        Raises:
            StorageError: it cannot be made.
        """
        with self._lock:
            if self._opened is None:
                file = _sqlite_file(self.properties)
                if file is not None and not self._options.uri:
                    _make_directory(file.parent)
                self._opened = _open(self._options, self.properties)
            return self._opened

    @property
    def is_missing(self) -> bool:
        """Whether this is a SQL catalog without its tables: opening it would create them."""
        if self._opened is not None or self.properties.get("type") != "sql":
            return False
        file = _sqlite_file(self.properties)
        if file is not None and not file.exists():
            return True
        engine = _engine(self.properties["uri"])
        try:
            return not inspect(engine).has_table(IcebergTables.__tablename__)
        except DatabaseError as failed:
            message = f"{self.properties['uri']}: the catalog cannot be opened: {failed.orig}"
            raise StorageError(message) from failed
        finally:
            engine.dispose()

    @property
    def is_local(self) -> bool:
        """True if the catalog's code runs in this process, once for each call: no copy of a request can come later."""
        return isinstance(self.catalog, SqlCatalog)

    def load(self, path: TablePath) -> Table | None:
        """Return a table as it is now, None if there is none.

        Raises:
            LakeError: the catalog cannot load it; a `LakeAwayError` if the catalog does not answer at all.
        """
        if self.is_missing:
            return None
        try:
            return self.catalog.load_table((path.database, path.table))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except Exception as failed:
            if (why := away(failed)) is not None:
                raise LakeAwayError(self._named(why)) from failed
            message = f"{path}: the catalog cannot load the table: {short(failed)}"
            raise LakeError(message) from failed

    def send(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> tuple[Sent, TableMetadata | None]:
        """Send a commit, once; return LANDED and the new metadata, or CONFLICT.

        Raises:
            StorageError: the metadata file could not be written; nothing landed.
            LakeError: the catalog refused it for good; nothing landed.
            OutcomeUnknownError: anything that is not known to be a refusal.
        """
        name = ".".join(table.name())
        try:
            response = self.catalog.commit_table(table, requirements, updates)
        except (CommitFailedException, NoSuchTableError):
            return Sent.CONFLICT, None
        except (BadRequestError, UnauthorizedError, ForbiddenError) as refused:
            message = f"{name}: the catalog refused the commit: {refused}"
            raise LakeError(message) from refused
        except Exception as failed:  # noqa: BLE001 - what is not known to be a refusal may have landed
            self._raise_failure(name, failed)
        else:
            return Sent.LANDED, response.metadata

    def rename(self, path: TablePath, target: TablePath) -> None:
        """Rename a table.

        Raises:
            LakeError: refused, or of unknown outcome: load the table to see whether it happened.
        """
        try:
            self.catalog.rename_table((path.database, path.table), (target.database, target.table))
        except Exception as failed:
            message = f"{path}: the catalog cannot rename the table: {failed}"
            raise LakeError(message) from failed

    def fate(self, path: TablePath, base: Table, snapshot_id: int) -> Fate:
        """Return what became of a snapshot that was sent, built on `base`; its files may be deleted only if it is LOST.

        Raises:
            LakeError: the catalog cannot answer.
        """
        now = self.load(path)
        if now is None or now.metadata.table_uuid != base.metadata.table_uuid:
            return Fate.OPEN
        # If the snapshot was expired since, its offsets are still in the table properties.
        copied = now.metadata.properties.get(COPIED_SNAPSHOT)
        if now.metadata.snapshot_by_id(snapshot_id) is not None or copied == str(snapshot_id):
            return Fate.LANDED
        left = now.metadata.current_snapshot_id != base.metadata.current_snapshot_id
        return Fate.LOST if left or self.is_local else Fate.OPEN

    def _raise_failure(self, name: str, failed: Exception) -> NoReturn:
        # The SQL catalog runs in this process: it checks updates and writes the metadata file before the swap.
        if self.is_local and isinstance(failed, OSError):
            message = f"{name}: the metadata cannot be written: {refusal(failed, self.warehouse)}"
            raise StorageError(message) from failed
        if self.is_local and isinstance(failed, ValueError):
            message = f"{name}: the catalog refused the commit: {failed}"
            raise LakeError(message) from failed
        message = f"{name}: the outcome of the commit is unknown: {away(failed) or short(failed)}"
        raise OutcomeUnknownError(message) from failed

    def _named(self, why: str) -> str:
        """Return why the catalog does not answer, with the file or address that it has and without a password."""
        uri = self.properties.get("uri", "")
        file = _sqlite_file(self.properties)
        if file is not None:
            return f"{file}: {why}"
        return f"{mask_uri(uri)}: {why}" if uri else why

    def close(self) -> None:
        """Close the catalog's connections."""
        if isinstance(self._opened, SqlCatalog):
            self._opened.engine.dispose()
        elif self._opened is not None:
            self._opened.close()


def warehouse_uri(options: IcebergOptions) -> str:
    """Return the warehouse as a URI; anything but a local path is unchanged.

    Raises:
        ConfigError: it is empty, or a path that no URI can name as readers take URIs apart.
    """
    text = options.warehouse
    if not text:
        raise ConfigError(key="lake.warehouse", expected="a directory or a URI", found=text)
    if options.catalog == "rest" or ("://" in text and not text.startswith("file:")):
        return text.rstrip("/")
    path = f"{Path(local_path(text)).expanduser().absolute()}"
    if "#" in path or "?" in path:
        raise ConfigError(
            key="lake.warehouse", expected="a path without `#` and `?`, which end a URI's path", found=path
        )
    return f"file://{path}"


def _properties(options: IcebergOptions, warehouse: str) -> dict[str, str]:
    properties = {"warehouse": warehouse, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    if options.catalog == "rest":
        properties |= {"py-catalog-impl": _REST, "lakeward.call-timeout-s": f"{options.commit_timeout_s:g}"}
    elif "py-catalog-impl" not in options.properties:
        properties["type"] = options.catalog
    if uri := _catalog_uri(options, warehouse):
        properties["uri"] = uri
    return properties | dict(options.properties)


def _catalog_uri(options: IcebergOptions, warehouse: str) -> str:
    uri = options.uri
    if options.catalog != "sql":
        if options.catalog in _REACHED_BY_URI and not (uri or options.properties.get("uri")):
            raise ConfigError(key="lake.uri", expected=f"the URI of the {options.catalog} catalog", found=uri)
        return uri
    if not uri:
        if not warehouse.startswith("file:"):
            raise ConfigError(key="lake.uri", expected="a database's URI, as the warehouse is no directory", found=uri)
        place = f"{local_path(warehouse)}/catalog.db"
        uri = URL.create("sqlite", database=place).render_as_string() if "%" in place else f"{_SQLITE}{place}"
    if uri.startswith(_SQLITE) and "timeout=" not in uri:
        # SQLite waits so long for the lock of another process before it says "database is locked".
        uri += f"{'&' if '?' in uri else '?'}timeout={options.commit_timeout_s:g}"
    return uri


def _engine(uri: str) -> Engine:
    try:
        return create_engine(uri)
    except (ImportError, ArgumentError) as unfit:
        expected = "the URI of a database whose driver is installed"
        hint = f"{unfit}. For PostgreSQL: pip install 'pyiceberg[sql-postgres]'."
        raise ConfigError(key="lake.uri", expected=expected, found=mask_uri(uri), hint=hint) from unfit


def _sqlite_file(properties: Mapping[str, str]) -> Path | None:
    """Return the file of a SQLite catalog, None for another database."""
    uri = properties.get("uri", "")
    place = make_url(uri).database if uri.startswith(_SQLITE) else None
    return Path(place) if place and place != ":memory:" else None


def _check_can_be_made(file: Path | None, warehouse: str) -> None:
    """Raise the error now that would otherwise come when the first table is created.

    Raises:
        StorageError: the directory of a catalog that is not there yet cannot be written.
    """
    if file is None:
        return
    ours = file.parent == Path(local_path(warehouse))
    there = next(parent for parent in file.parents if parent.exists()) if ours else file.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        message = f"{file}: the catalog cannot be created: {there} is no directory that can be written"
        raise StorageError(message)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as refused:
        message = f"{directory}: the warehouse cannot be created: {refused}"
        raise StorageError(message) from refused


def _check_type(properties: Mapping[str, str]) -> None:
    """Refuse a type of catalog that pyiceberg does not have; a class of its own needs none."""
    types = [one.value for one in CatalogType]
    found = properties.get("type", types[0])
    if found not in types:
        expected = f"one of {', '.join(types)}"
        raise ConfigError(key="lake.catalog", expected=expected, found=found, hint=did_you_mean(found, types))


def _open(options: IcebergOptions, properties: dict[str, str]) -> Catalog:
    _check_type(properties)
    place = properties.get("uri") or f"lake.catalog = {options.catalog!r}"
    for remaining in reversed(range(_OPEN_TRIES)):
        try:
            catalog = load_catalog(options.catalog_name, **properties)
        except OperationalError as failed:
            # Two processes that create the catalog's tables at once: the second is told that they exist.
            if "already exists" not in str(failed) or not remaining:
                message = f"{place}: the catalog cannot be opened: {failed.orig}"
                raise StorageError(message) from failed
            time.sleep(0.05)
        except (ValueError, KeyError, ImportError) as unfit:
            expected = "a catalog that pyiceberg can open"
            raise ConfigError(key="lake.catalog", expected=expected, found=options.catalog, hint=str(unfit)) from unfit
        except NotInstalledError as missing:
            expected = "a catalog whose packages are installed"
            hint = f"{missing}."
            raise ConfigError(key="lake.catalog", expected=expected, found=options.catalog, hint=hint) from missing
        except Exception as failed:
            message = f"{place}: the catalog cannot be opened: {away(failed) or short(failed)}"
            raise LakeError(message) from failed
        else:
            if type(catalog) is SqlCatalog:
                catalog = LineageSqlCatalog.instead_of(catalog)
            if isinstance(catalog, SqlCatalog):
                # SQLite's connections are not closed with the last reference to them: Python 3.13 complains of that.
                weakref.finalize(catalog, catalog.engine.dispose)
            return catalog
    message = "unreachable"
    raise AssertionError(message)
