"""Open the configured source, lake and lease backend for one command."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakeward.arrow_alone import use_arrow_alone
from lakeward.clock import SystemClock
from lakeward.config.tables import modes_of, table_rules
from lakeward.coordinator.rounds.mirroring import MIRROR, as_configured, configured_tables
from lakeward.hooks.discovery import load
from lakeward.hooks.plugins import LAKE_GROUP, SOURCE_GROUP
from lakeward.storage.commit_records import CommitRecords
from lakeward.storage.round_history import RoundHistory
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Lake, Source


@contextmanager
def opened_source(loaded: Loaded) -> Iterator[Source]:
    """Open the configured source, and close it at the end.

    Raises:
        ConfigError, SourceError: as the plugin's `open`.
    """
    use_arrow_alone()
    plugin: Any = load(SOURCE_GROUP, loaded.settings.source.type)
    source: Source = plugin.open(loaded.source_options, SystemClock())
    try:
        yield source
    finally:
        source.close()


def configured_table(loaded: Loaded, source: Source, path: TablePath) -> TableSpec:
    """Return one table as the configuration has it; raises as `Source.table`."""
    return as_configured(source.table(path), table_rules(loaded, path).settings)


def all_configured(loaded: Loaded, source: Source) -> Sequence[TableSpec]:
    """Return all tables to be tiered or mirrored, as the configuration has them; raises as `Source.tables`."""
    mirrors = MIRROR in modes_of(loaded.settings)
    return configured_tables(source, lambda path: table_rules(loaded, path).settings, mirrors=mirrors)


def open_records(loaded: Loaded, service: str = "") -> CommitRecords:
    """Open what a service remembers of its commits. An empty name means the configured service.

    Raises:
        StorageError: the state root is of no known kind.
    """
    return CommitRecords(SmallFiles(loaded.settings.checkpoint.address), service or loaded.settings.service.name)


def open_history(loaded: Loaded) -> RoundHistory:
    """Open the service's rounds that have ended.

    Raises:
        StorageError: the state root is of no known kind.
    """
    return RoundHistory(SmallFiles(loaded.settings.checkpoint.address), loaded.settings.service.name)


@contextmanager
def opened_lake(loaded: Loaded) -> Iterator[Lake]:
    """Open the configured lake, and close it at the end.

    Raises:
        ConfigError, StorageError: as the plugin's `open`.
    """
    use_arrow_alone()
    plugin: Any = load(LAKE_GROUP, loaded.settings.lake.type)
    lake: Lake = plugin.open(loaded.lake_options, SystemClock())
    try:
        yield lake
    finally:
        lake.close()
