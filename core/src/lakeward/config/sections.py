"""Fill one section from entries: refuse unknown keys, convert values, complete paths, name missing keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.config.entries import SET_BUT_EMPTY, VARIABLE, ConfigEntry
from lakeward.config.keys import Key, keys_of, nearest
from lakeward.config.values import convert
from lakeward.errors import ConfigError
from lakeward.model.secrets import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT = "default"


@dataclass(slots=True)
class Filled:
    """The given values of one section, its default paths, and where the value of each key came from."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Missing:
    """What the error of a missing key says: the file, where there is one, and what to do."""

    file: str = ""
    hint: str = "It has no default."

    def error(self, dotted: str, key: Key) -> ConfigError:
        """Return the error of one key."""
        where = f"{self.file}: {dotted}" if self.file else dotted
        meaning = f" ({key.description.rstrip('.')})" if key.description else ""
        return ConfigError(where, f"{key.expected}{meaning}", "nothing", self.hint)


def fill(
    section: str, keys: Mapping[str, Key], entries: Iterable[ConfigEntry], base: Path, missing: Missing | None = None
) -> Filled:
    """Check entries of a section and merge them; a later entry (a stronger layer) wins over an earlier one.

    Relative paths are relative to `base`. `missing` is what the error of a missing key says besides. Returned are the
    given values, the absolute defaults of path keys, and the origin of every key.

    Raises:
        ConfigError: an unknown key, a wrong value, or a required key that is missing.
    """
    filled = Filled(origins={f"{section}.{name}": DEFAULT for name, key in keys.items() if not key.required})
    for entry in entries:
        if entry.key not in keys:
            raise ConfigError(entry.where, f"a key of [{section}]", entry.key, nearest(entry.key, keys))
        _take(filled, keys[entry.key], entry)
    for key in keys.values():
        if key.required and key.name not in filled.values:
            dotted = f"{section}.{key.name}"
            raise (missing or Missing()).error(dotted, key)
        _complete(filled, key, base)
    return filled


def build_options(options_type: type[Any], mapping: Mapping[str, Any], section: str, base: Path | None = None) -> Any:  # noqa: ANN401 - an instance of `options_type`
    """Make a plugin's options from a mapping of TOML's values, with the same checks as a section of the file.

    `section` is named in errors. Relative paths are relative to `base`; None: to the current directory.

    Raises:
        ConfigError: an unknown key, a wrong value, or a required key is missing.
    """
    entries = [
        ConfigEntry(section, key, "", value, False, f"{section}.{key}", section) for key, value in mapping.items()
    ]
    return options_type(**fill(section, keys_of(options_type), entries, base or Path.cwd()).values)


def _take(filled: Filled, key: Key, entry: ConfigEntry) -> None:
    dotted = f"{entry.section}.{key.name}"
    _refuse_empty(key, entry)
    if entry.inner:
        _take_inner(filled, key, entry, dotted)
        return
    value = convert(entry.where, key, entry.value, is_text=entry.is_text)
    if key.table:
        _forget_inner(filled, dotted)
        filled.origins.update({f"{dotted}.{name}": entry.origin for name in value})
    filled.values[key.name] = value
    filled.origins[dotted] = entry.origin


def _refuse_empty(key: Key, entry: ConfigEntry) -> None:
    """Refuse a variable that is set, but empty, where the key needs a value, or is a secret: it was meant to be set."""
    may_be_empty = bool(entry.inner) or (isinstance(key.default, str | tuple) and not key.default)
    secret = key.secret or is_secret_name(entry.inner)
    if entry.value == "" and entry.where.startswith(VARIABLE) and (secret or not may_be_empty):
        raise ConfigError(entry.where, "a value" if entry.inner else key.expected, "nothing", SET_BUT_EMPTY)


def _take_inner(filled: Filled, key: Key, entry: ConfigEntry, dotted: str) -> None:
    if not key.table:
        raise ConfigError(entry.where, f"no name below {dotted}", entry.inner)
    given = convert(entry.where, key, {entry.inner: entry.value})
    filled.values[key.name] = {**filled.values.get(key.name, {}), **given}
    filled.origins[f"{dotted}.{entry.inner}"] = entry.origin


def _forget_inner(filled: Filled, dotted: str) -> None:
    for name in [name for name in filled.origins if name.startswith(f"{dotted}.")]:
        del filled.origins[name]


def _complete(filled: Filled, key: Key, base: Path) -> None:
    if key.is_path(filled.values):
        value = filled.values.get(key.name, key.default)
        filled.values[key.name] = _absolute(value, base)


def _absolute(value: Any, base: Path) -> Any:  # noqa: ANN401 - gives back the type it got
    """Make a path absolute; a URI, an empty text and None stay as they are."""
    if not isinstance(value, str | Path) or not str(value) or "://" in str(value):
        return value
    absolute = base / Path(value).expanduser()
    return absolute if isinstance(value, Path) else str(absolute)
