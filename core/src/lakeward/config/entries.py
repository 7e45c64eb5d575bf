"""Read the entries of the configuration from a file, from the environment and from flags; the later ones win."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.config.keys import nearest
from lakeward.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

ENVIRONMENT_PREFIX = "LAKEWARD_"
CONFIG_VARIABLE = "LAKEWARD_CONFIG"
DEFAULT_FILE = "lakeward.toml"
VARIABLE = "environment "
"""Begins the place of a value that is a variable's."""
SET_BUT_EMPTY = "The variable is set, but empty: give it a value, or unset it."
_OF_KUBERNETES = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)")


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One value of the file, the environment or a flag.

    `inner` is the name inside a key that is itself a table (`spark.conf`), empty otherwise. `is_text`: the value is
    a text that is converted to the key's type. `where` names the place in errors, `origin` in `config show`.
    """

    section: str
    key: str
    inner: str
    value: Any
    is_text: bool
    where: str
    origin: str


def configuration_file(environ: Mapping[str, str]) -> Path:
    """Return the file that is read where none is named: that of LAKEWARD_CONFIG, else `lakeward.toml`.

    Raises:
        ConfigError: the variable is set, but empty.
    """
    named = environ.get(CONFIG_VARIABLE, DEFAULT_FILE)
    if not named:
        where = f"{VARIABLE}{CONFIG_VARIABLE}"
        raise ConfigError(where, "the path of a configuration file", "nothing", SET_BUT_EMPTY)
    return Path(named)


def read_document(file: Path) -> dict[str, Any]:
    """Read a TOML file; its keys are not checked.

    Raises:
        ConfigError: the file does not exist, cannot be read, or is not TOML (with the line).
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))  # editors of Windows begin it with a mark
    except FileNotFoundError as error:
        hint = f"Make one with `lakeward config init {file}`, or name another with --config."
        raise ConfigError(str(file), "a configuration file", "no such file", hint) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), "a readable text file (UTF-8)", str(error)) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(file), "TOML", str(error)) from error


def from_document(document: Mapping[str, Any], file: Path, sections: Iterable[str]) -> list[ConfigEntry]:
    """Return the entries of all sections but `tables`, in the file's order.

    `document` is as `read_document` gives it; `file` is named in errors and origins; `sections` are the names of all
    sections.

    Raises:
        ConfigError: an unknown section, or a key outside any section.
    """
    entries: list[ConfigEntry] = []
    for section, body in document.items():
        if section not in set(sections):
            expected = "a section" if isinstance(body, Mapping) else "only sections at the top level"
            raise ConfigError(place(file, section), expected, section, nearest(section, sections))
        if not isinstance(body, Mapping):
            raise ConfigError(place(file, section), f"a section [{section}]", body)
        if section != "tables":
            entries += [_file_entry(file, section, key, value) for key, value in body.items()]
    return entries


def from_environment(environ: Mapping[str, str], sections: Iterable[str]) -> list[ConfigEntry]:
    """Return the entries of all variables `LAKEWARD_SECTION__KEY` (`__NAME` after it: inside a key that is a table).

    They are ordered by name. `sections` are the names of all sections but `tables`.

    Raises:
        ConfigError: the section is unknown, or one underscore follows it where two are meant.
    """
    entries: list[ConfigEntry] = []
    for name in sorted(environ):
        section, double, rest = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        where = f"{VARIABLE}{name}"
        if (meant := _one_underscore(name, sections)) and not _made_by_kubernetes(name, environ):
            raise ConfigError(where, f"{meant} (two underscores after the section)", name)
        if not double:
            continue
        if section not in set(sections):
            raise ConfigError(where, "a section's name after LAKEWARD_", section, nearest(section, sections))
        key, _, inner = rest.partition("__")
        entries.append(ConfigEntry(section, key, inner.replace("__", "."), environ[name], True, where, where))
    return entries


def _one_underscore(name: str, sections: Iterable[str]) -> str | None:
    """Return the variable that is meant where only one underscore follows the section, else None."""
    section, _, rest = name.removeprefix(ENVIRONMENT_PREFIX).partition("_")
    meant = section.lower() in set(sections) and rest and not rest.startswith("_")
    return f"{ENVIRONMENT_PREFIX}{section}__{rest}" if meant else None


def _made_by_kubernetes(name: str, environ: Mapping[str, str]) -> bool:
    """Return whether Kubernetes made the variable for its pods: a service `lakeward` gives LAKEWARD_SERVICE_PORT."""
    return "KUBERNETES_SERVICE_HOST" in environ and _OF_KUBERNETES.fullmatch(name) is not None


def from_flags(flags: Mapping[str, object], sections: Iterable[str]) -> list[ConfigEntry]:
    """Return the entries of flags, in order.

    A flag is `section.key` (or `section.key.name` inside a key that is a table) to a text or a value. `sections` are
    the names of all sections but `tables`.

    Raises:
        UsageError: a name without a section, or an unknown section.
    """
    entries: list[ConfigEntry] = []
    for name, value in flags.items():
        section, _, rest = name.partition(".")
        key, _, inner = rest.partition(".")
        if section not in set(sections) or not key:
            message = f"flag --set {name}: expected SECTION.KEY=VALUE. {nearest(section, sections)}"
            raise UsageError(message)
        where = f"flag --set {name}"
        entries.append(ConfigEntry(section, key, inner, value, isinstance(value, str), where, where))
    return entries


def place(file: Path, key: str) -> str:
    """Return the name of a place in the file, for errors: `lakeward.toml: service.rounds`."""
    return f"{file.name}: {key}"


def _file_entry(file: Path, section: str, key: str, value: object) -> ConfigEntry:
    return ConfigEntry(section, key, "", value, False, place(file, f"{section}.{key}"), f"file {file.name}")
