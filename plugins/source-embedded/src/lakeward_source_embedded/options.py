"""Settings of a table and of a whole store: text in, checked values out."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from lakeward.errors import ConfigError
from lakeward.model.near_names import did_you_mean
from lakeward.model.options import Meta

if TYPE_CHECKING:
    from collections.abc import Mapping

FRESHNESS = "table.datalake.freshness-s"
DEFAULT_FRESHNESS_S = 180
LAKE_ENABLED = "table.datalake.enabled"


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The checked properties of a table; times in seconds, 0 = off."""

    snapshot_interval_s: float
    snapshot_rows: int
    snapshots_retained: int
    log_ttl_s: float
    lake_enabled: bool

    @property
    def unread_kept_s(self) -> float | None:
        """Seconds after which records are deleted that no lake has, None where they are kept."""
        return None if self.lake_enabled or not self.log_ttl_s else self.log_ttl_s


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: its default as text, its description, its type with bounds, and a description of the expected value."""

    default: str
    description: str
    kind: Any
    expected: str

    def read(self, key: str, text: str) -> object:
        """Convert a text to the key's type.

        Raises:
            ConfigError: the text does not fit.
        """
        try:
            value = msgspec.convert(text, self.kind, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(key, self.expected, text) from error
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(key, self.expected, text)
        return value


def _flag(default: str, description: str) -> Setting:
    return Setting(default, description, Literal["true", "false"], "true or false")


def _seconds(default: str, description: str) -> Setting:
    return Setting(default, description, Annotated[float, Meta(ge=0)], "seconds, >= 0")


def _timeout(default: str, description: str) -> Setting:
    return Setting(default, description, Annotated[float, Meta(gt=0)], "seconds, > 0")


def _count(default: str, description: str, least: int) -> Setting:
    return Setting(default, description, Annotated[int, Meta(ge=least)], f"a whole number, >= {least}")


TABLE_SETTINGS: Mapping[str, Setting] = {
    "table.kv.snapshot.interval-s": _seconds("600", "seconds between KV snapshots of a changed bucket, 0 = off"),
    "table.kv.snapshot.rows": _count("0", "changes of a bucket after which a KV snapshot is taken, 0 = off", 0),
    "table.kv.snapshot.num-retained": _count("2", "KV snapshots of a bucket that clean-up keeps", 1),
    "table.log.ttl-s": _seconds("0", "seconds that log records are kept, 0 = for ever"),
    LAKE_ENABLED: _flag("true", "whether the table is in the tiering queue"),
    FRESHNESS: _timeout(f"{DEFAULT_FRESHNESS_S}", "seconds that the lake may be behind"),
}
STORE_SETTINGS: Mapping[str, Setting] = {
    "lease-api": _flag("true", "false makes the store an old server without the lease API"),
    "tiering-timeout-s": _timeout("120", "seconds without a heartbeat after which a table is given to another service"),
}


def check_table_properties(properties: Mapping[str, str]) -> None:
    """Check the properties of a table: key to text.

    A key of ours must be known; one with a prefix of its own, such as `iceberg.write.format.default`, is for the lake
    and is kept as it is.

    Raises:
        ConfigError: names the key, what was expected and what was found.
    """
    for key, text in properties.items():
        setting = TABLE_SETTINGS.get(key)
        if setting is not None:
            setting.read(key, text)
        elif not _is_for_a_lake(key):
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


def _is_for_a_lake(key: str) -> bool:
    prefix, dot, _ = key.partition(".")
    return bool(dot) and prefix != "table" and not difflib.get_close_matches(key, TABLE_SETTINGS, n=1, cutoff=0.8)


def _unknown(key: str, known: Mapping[str, Setting]) -> ConfigError:
    return ConfigError(key, "one of " + ", ".join(known), key, did_you_mean(key, known))
