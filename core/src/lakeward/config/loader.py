"""Load the configuration: file, then environment over it, then flags over both; every key checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.config.consistency import check_consistency
from lakeward.config.entries import CONFIG_VARIABLE, Entry, from_document, from_environment, from_flags, read_document
from lakeward.config.keys import Key, keys_of
from lakeward.config.sections import fill
from lakeward.config.tables import check_pattern, table_section
from lakeward.errors import LakewardError
from lakeward.hooks.discovery import load, published
from lakeward.hooks.plugins import LAKE_GROUP, LEASE_GROUP, SOURCE_GROUP
from lakeward.model.settings import (
    CheckpointSettings,
    LakeSettings,
    LeaseSettings,
    ObserveSettings,
    ServiceSettings,
    Settings,
    SourceSettings,
    SparkSettings,
    TableSettings,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_FILE = "lakeward.toml"
PLAIN_SECTIONS: dict[str, type[Any]] = {
    "service": ServiceSettings,
    "lease": LeaseSettings,
    "checkpoint": CheckpointSettings,
    "spark": SparkSettings,
    "observe": ObserveSettings,
}
PLUGIN_SECTIONS: dict[str, tuple[type[Any], str]] = {
    "source": (SourceSettings, SOURCE_GROUP),
    "lake": (LakeSettings, LAKE_GROUP),
}
SECTIONS = ("service", "source", "lake", "lease", "checkpoint", "spark", "observe")
ALL_SECTIONS = (*SECTIONS, "tables")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checked configuration.

    `source_options` and `lake_options` are instances of the plugins' own dataclasses, and so is `lease_options`, None
    where the lease backend has no options. `provenance` maps a dotted key (`service.rounds`,
    `spark.conf.spark.ui.port`, `tables."db.*".include`) to the place that its value came from.
    """

    settings: Settings
    source_options: Any
    lake_options: Any
    provenance: Mapping[str, str]
    file: Path
    lease_options: Any = None


def load_config(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object] | None = None) -> Loaded:
    """Load and check the whole configuration; nothing is opened or written.

    Args:
        file: the TOML file; None: the variable LAKEWARD_CONFIG, else `lakeward.toml` in the current directory.
        environ: the environment; variables `LAKEWARD_SECTION__KEY` count.
        flags: `section.key` to value (a text is parsed to the key's type).

    Returns:
        The configuration and where each value came from.

    Raises:
        ConfigError: no file, no TOML, an unknown section or key, a wrong value; names key, expected and found.
        MissingPluginError: a source or lake is named that nothing installed offers.
        UsageError: a flag names no key.
    """
    path = file or Path(environ.get(CONFIG_VARIABLE) or DEFAULT_FILE)
    document = read_document(path)
    entries = [
        *from_document(document, path, ALL_SECTIONS),
        *from_environment(environ, SECTIONS),
        *from_flags(flags or {}, SECTIONS),
    ]
    return _build(path, entries, document.get("tables", {}))


def _build(path: Path, entries: Sequence[Entry], tables: Mapping[str, Any]) -> Loaded:
    base = path.absolute().parent
    provenance: dict[str, str] = {}
    sections: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name in SECTIONS:
        mine = [entry for entry in entries if entry.section == name]
        if name in PLUGIN_SECTIONS:
            sections[name], options[name] = _plugin_section(name, mine, base, provenance)
        elif name == "lease":
            sections[name], options[name] = _lease_section(mine, base, provenance)
        else:
            sections[name] = _plain_section(name, mine, base, provenance)
    sections["tables"] = _tables(path, tables, provenance)
    settings = Settings(**sections)
    check_consistency(settings, path)
    return Loaded(settings, options["source"], options["lake"], provenance, path, options["lease"])


def section_keys(name: str) -> dict[str, Key]:
    """Return the core's own keys of a section (without `options`).

    Args:
        name: one of `SECTIONS`.
    """
    section = PLUGIN_SECTIONS[name][0] if name in PLUGIN_SECTIONS else PLAIN_SECTIONS[name]
    keys = keys_of(section)
    keys.pop("options", None)
    if name == "checkpoint":
        root = keys["root"]
        keys["root"] = dataclasses.replace(root, metadata={**root.metadata, "path": True})
    return keys


def _plain_section(name: str, entries: Sequence[Entry], base: Path, provenance: dict[str, str]) -> Any:  # noqa: ANN401 - one of the sections
    filled = fill(name, section_keys(name), entries, base)
    provenance.update(filled.origins)
    return PLAIN_SECTIONS[name](**filled.values)


def _plugin_section(name: str, entries: Sequence[Entry], base: Path, provenance: dict[str, str]) -> tuple[Any, Any]:
    """Fill `[source]` or `[lake]`: the core's keys, and those of the plugin that `type` names."""
    section, group = PLUGIN_SECTIONS[name]
    core = section_keys(name)
    only_type = fill(name, {"type": core["type"]}, [entry for entry in entries if entry.key == "type"], base)
    plugin: Any = load(group, only_type.values.get("type", core["type"].default))
    theirs = keys_of(plugin.options)
    filled = fill(name, {**theirs, **core}, entries, base)
    provenance.update(filled.origins)
    own = section(**{key: value for key, value in filled.values.items() if key in core})
    options = {key: value for key, value in filled.values.items() if key not in core}
    # A key that both declare (a commit's timeout) is one key: the plugin is told the core's value.
    shared = {key: getattr(own, key) for key in core if key in theirs}
    return dataclasses.replace(own, options=options), plugin.options(**options, **shared)


def _lease_section(entries: Sequence[Entry], base: Path, provenance: dict[str, str]) -> tuple[LeaseSettings, Any]:
    """Fill `[lease]`: the core's keys, and those of the backend that `backend` names, if it has options."""
    core = section_keys("lease")
    named = fill("lease", {"backend": core["backend"]}, [one for one in entries if one.key == "backend"], base)
    declared = _backend_options(named.values.get("backend", core["backend"].default), entries, core)
    theirs = {} if declared is None else keys_of(declared)
    filled = fill("lease", {**theirs, **core}, entries, base)
    provenance.update(filled.origins)
    own = LeaseSettings(**{key: value for key, value in filled.values.items() if key in core})
    if declared is None:
        return own, None
    # A key that both declare (the duration) is one key: the backend is told the core's value.
    shared = {key: getattr(own, key) for key in core if key in theirs}
    return own, declared(**{key: value for key, value in filled.values.items() if key not in core}, **shared)


def _backend_options(name: str, entries: Sequence[Entry], core: Mapping[str, Key]) -> type[Any] | None:
    """Return a backend's options; one that is not installed is missed by whoever needs it, or by its own keys."""
    try:
        return getattr(published(LEASE_GROUP, name), "options", None)
    except LakewardError:
        if any(entry.key not in core for entry in entries):
            raise
        return None


def _tables(path: Path, tables: Mapping[str, Any], provenance: dict[str, str]) -> dict[str, TableSettings]:
    rules: dict[str, TableSettings] = {}
    for pattern, body in tables.items():
        section = table_section(pattern)
        where = f"{path.name}: {section}"
        check_pattern(where, pattern, body)
        entries = [
            Entry(section, key, "", value, False, f"{where}.{key}", f"file {path.name}") for key, value in body.items()
        ]
        filled = fill(section, keys_of(TableSettings), entries, path.parent)
        provenance.update({key: origin for key, origin in filled.origins.items() if origin != "default"})
        rules[pattern] = TableSettings(**filled.values)
    return rules
