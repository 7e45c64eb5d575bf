"""Settings of a table and of a whole store: text in, checked values out."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

FRESHNESS = "table.datalake.freshness-s"
LAKE_ENABLED = "table.datalake.enabled"


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The checked properties of a table; times in seconds, 0 = off."""

    snapshot_interval_s: float
    snapshot_rows: int
    snapshots_retained: int
    log_ttl_s: float
    lake_enabled: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: its default as text, what it is, and the check that reads it."""

    default: str
    description: str
    read: Callable[[str, str], object]


def _flag(key: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise ConfigError(key, "true or false", text)
    return text == "true"


def _seconds(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(key, "seconds, >= 0", text)
    return value


def _timeout(key: str, text: str) -> float:
    value = _seconds(key, text)
    if value == 0:
        raise ConfigError(key, "seconds, > 0", text)
    return value


def _rows(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(key, "a whole number, >= 0", text)
    return int(text)


def _retained(key: str, text: str) -> int:
    value = _rows(key, text)
    if value < 1:
        raise ConfigError(key, "a whole number, >= 1", text)
    return value


TABLE_SETTINGS: Mapping[str, Setting] = {
    "table.kv.snapshot.interval-s": Setting(
        "600", "seconds between KV snapshots of a changed bucket, 0 = off", _seconds
    ),
    "table.kv.snapshot.rows": Setting("0", "changes of a bucket after which a KV snapshot is taken, 0 = off", _rows),
    "table.kv.snapshot.num-retained": Setting("2", "KV snapshots of a bucket that clean-up keeps, >= 1", _retained),
    "table.log.ttl-s": Setting("0", "seconds that log records are kept, 0 = for ever", _seconds),
    LAKE_ENABLED: Setting("true", "whether the table is in the tiering queue", _flag),
    FRESHNESS: Setting("180", "seconds that the lake may be behind", _timeout),
}
STORE_SETTINGS: Mapping[str, Setting] = {
    "lease-api": Setting("true", "false makes the store an old server without the lease API", _flag),
    "tiering-timeout-s": Setting("120", "seconds without a heartbeat after which a table is given away", _timeout),
}


def check_table_properties(properties: Mapping[str, str]) -> None:
    """Check the properties of a table.

    Args:
        properties: key to text. Keys that begin with `table.` must be known; others are kept as they are.

    Raises:
        ConfigError: names the key, what was expected and what was found.
    """
    for key, text in properties.items():
        setting = TABLE_SETTINGS.get(key)
        if setting is not None:
            setting.read(key, text)
        elif key.startswith("table."):
            raise _unknown(key, TABLE_SETTINGS)


def table_options(properties: Mapping[str, str]) -> TableOptions:
    """Read the checked properties of a table, defaults filled in."""

    def text(key: str) -> str:
        return properties.get(key, TABLE_SETTINGS[key].default)

    return TableOptions(
        snapshot_interval_s=float(text("table.kv.snapshot.interval-s")),
        snapshot_rows=int(text("table.kv.snapshot.rows")),
        snapshots_retained=int(text("table.kv.snapshot.num-retained")),
        log_ttl_s=float(text("table.log.ttl-s")),
        lake_enabled=text(LAKE_ENABLED) == "true",
    )


def check_store_option(key: str, text: str) -> None:
    """Check one setting of a store. Raises as `check_table_properties`."""
    setting = STORE_SETTINGS.get(key)
    if setting is None:
        raise _unknown(key, STORE_SETTINGS)
    setting.read(key, text)


def _unknown(key: str, known: Mapping[str, Setting]) -> ConfigError:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"The nearest is {near[0]!r}" if near else ""
    return ConfigError(key, "one of " + ", ".join(known), key, hint)
