"""Open the configured source, lake and lease backend for one command."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakeward.clock import SystemClock
from lakeward.config.tables import table_rules
from lakeward.coordinator.service.scheduling import scheduled
from lakeward.hooks.discovery import load
from lakeward.hooks.plugins import LAKE_GROUP, SOURCE_GROUP
from lakeward.storage.commit_records import CommitRecords
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.config.loaded import Loaded
    from lakeward.ports import Lake, Source


@contextmanager
def opened_source(loaded: Loaded) -> Iterator[Source]:
    """Open the configured source, and close it at the end.

    Args:
        loaded: the configuration.

    Raises:
        ConfigError, SourceError: as the plugin's `open`.
    """
    plugin: Any = load(SOURCE_GROUP, loaded.settings.source.type)
    source: Source = plugin.open(loaded.source_options, SystemClock())
    modes = {rules.mode for rules in loaded.settings.tables.values()}
    try:
        yield scheduled(source, modes, lambda path: table_rules(loaded, path).settings, SystemClock())
    finally:
        source.close()


def open_records(loaded: Loaded) -> CommitRecords:
    """Open what the service remembers of its commits.

    Raises:
        StorageError: the state root is of no known kind.
    """
    return CommitRecords(SmallFiles(loaded.settings.checkpoint.address), loaded.settings.service.name)


@contextmanager
def opened_lake(loaded: Loaded) -> Iterator[Lake]:
    """Open the configured lake, and close it at the end.

    Args:
        loaded: the configuration.

    Raises:
        ConfigError, StorageError: as the plugin's `open`.
    """
    plugin: Any = load(LAKE_GROUP, loaded.settings.lake.type)
    lake: Lake = plugin.open(loaded.lake_options, SystemClock())
    try:
        yield lake
    finally:
        lake.close()
