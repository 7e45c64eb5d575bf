"""Open the configured source, lake and lease backend for one command."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakeward.arrow_alone import use_arrow_alone
from lakeward.clock import SystemClock
from lakeward.config.tables import modes_of, table_rules
from lakeward.coordinator.service.scheduling import scheduled
from lakeward.hooks.discovery import load
from lakeward.hooks.plugins import LAKE_GROUP, SOURCE_GROUP
from lakeward.storage.commit_records import CommitRecords
from lakeward.storage.round_history import RoundHistory
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.config.loaded import Loaded
    from lakeward.ports import Lake, Source


@contextmanager
def opened_source(loaded: Loaded) -> Iterator[Source]:
    """Open the configured source with the rules of its tables, and close it at the end. See `opened_plain_source`."""
    with opened_plain_source(loaded) as source:
        yield as_configured(loaded, source)


@contextmanager
def opened_plain_source(loaded: Loaded) -> Iterator[Source]:
    """Open the configured source as its plugin makes it, with all that it offers, and close it at the end.

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


def as_configured(loaded: Loaded, source: Source) -> Source:
    """Return an open source with the tables that the configuration names, and their rules."""
    return scheduled(source, modes_of(loaded.settings), lambda path: table_rules(loaded, path).settings, SystemClock())


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
