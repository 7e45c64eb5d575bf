"""Load the configuration. The environment wins over the file, flags win over both; every key is checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.config.consistency import (
    check_bad_rows,
    check_consistency,
    check_lake_names,
    check_mirrors,
    check_partitioned_tables,
)
from lakeward.config.entries import (
    ConfigEntry,
    configuration_file,
    from_document,
    from_environment,
    from_flags,
    read_document,
)
from lakeward.config.keys import Key, keys_of
from lakeward.config.loaded import Loaded
from lakeward.config.sections import Missing, fill
from lakeward.config.tables import check_partition, check_pattern, table_section
from lakeward.errors import LakewardError
from lakeward.hooks.discovery import published
from lakeward.hooks.plugins import LAKE_GROUP, LEASE_GROUP, SOURCE_GROUP
from lakeward.model.settings import Settings, TableSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLE = "`lakeward config init example.toml` writes one."
ALL_SECTIONS = Settings.__struct_fields__
SECTIONS = tuple(name for name in ALL_SECTIONS if name != "tables")
PLUGIN_SECTIONS = {
    "source": ("type", SOURCE_GROUP),
    "lake": ("type", LAKE_GROUP),
    "lease": ("backend", LEASE_GROUP),
}
"""Sections with keys of a plugin: the key that names the plugin, and the group that it is published in."""


def load_config(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object] | None = None) -> Loaded:
    """Load and check the whole configuration, and note where each value came from; nothing is opened or written.

    Without a `file` it is that of the variable LAKEWARD_CONFIG, else `lakeward.toml` in the current directory. Of
    `environ`, variables `LAKEWARD_SECTION__KEY` count. `flags` are `section.key` to value (a text is parsed to the
    key's type).

    Raises:
        ConfigError: no file, no TOML, an unknown section or key, a wrong value; names key, expected and found.
        MissingPluginError: a source or lake is named that nothing installed offers.
        UsageError: a flag names no key.
    """
    path = file or configuration_file(environ)
    document = read_document(path)
    entries = [
        *from_document(document, path, ALL_SECTIONS),
        *from_environment(environ, SECTIONS),
        *from_flags(flags or {}, SECTIONS),
    ]
    hint = "It has no default." if document else f"The file is empty; see a full one: {_EXAMPLE}"
    return _build(path, entries, document.get("tables", {}), Missing(path.name, hint))


def _build(path: Path, entries: Sequence[ConfigEntry], tables: Mapping[str, Any], missing: Missing) -> Loaded:
    base = path.absolute().parent
    provenance: dict[str, str] = {}
    sections: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name in SECTIONS:
        mine = [entry for entry in entries if entry.section == name]
        declared = _declared(name, mine, base)
        core, theirs = section_keys(name), {} if declared is None else keys_of(declared)
        filled = fill(name, {**theirs, **core}, mine, base, missing)
        provenance.update(filled.origins)
        own = {key: value for key, value in filled.values.items() if key in core}
        further = {key: value for key, value in filled.values.items() if key not in core}
        section = section_type(name)
        sections[name] = section(**own, **({"options": further} if "options" in section.__struct_fields__ else {}))
        # A key that both declare (a commit's timeout) is one key: the plugin is given the core's value.
        shared = {key: getattr(sections[name], key) for key in core if key in theirs}
        options[name] = None if declared is None else declared(**further, **shared)
    sections["tables"] = _tables(path, tables, provenance)
    settings = Settings(**sections)
    check_consistency(settings, path, provenance)
    loaded = Loaded(settings, options["source"], options["lake"], provenance, path, options["lease"])
    partitions = any(rules.lake_partition for rules in settings.tables.values())
    checks_rows = any(rules.on_bad_row != "suspend" for rules in settings.tables.values())
    can_partition = not partitions or _lake_offers(settings, "partitioner", "partition_writer")
    check_partitioned_tables(loaded, can_partition=can_partition)
    check_bad_rows(loaded, can_check=not checks_rows or _lake_offers(settings, "row_check"))
    check_mirrors(loaded)
    check_lake_names(loaded)
    return loaded


def section_type(name: str) -> type[Any]:
    """Return the class that declares the core's keys of a section, one of `SECTIONS`."""
    return type(getattr(Settings(), name))


def section_keys(name: str) -> dict[str, Key]:
    """Return the core's own keys (without `options`) of a section, one of `SECTIONS`."""
    keys = keys_of(section_type(name))
    keys.pop("options", None)
    return keys


def plugin_options(section: str, name: str) -> type[Any] | None:
    """Return the class of a plugin's options in one of `PLUGIN_SECTIONS`, None for a lease backend without options.

    Raises:
        MissingPluginError: nothing installed offers it.
        PluginError: it cannot be loaded.
    """
    return getattr(published(PLUGIN_SECTIONS[section][1], name), "options", None)


def _declared(section: str, entries: Sequence[ConfigEntry], base: Path) -> type[Any] | None:
    """Return the options of the plugin that a section names, None where it has none."""
    if section not in PLUGIN_SECTIONS:
        return None
    core, naming = section_keys(section), PLUGIN_SECTIONS[section][0]
    named = fill(section, {naming: core[naming]}, [entry for entry in entries if entry.key == naming], base)
    try:
        return plugin_options(section, named.values.get(naming, core[naming].default))
    except LakewardError:
        # Commands that use no lease work without the backend; its keys cannot be checked without it.
        if section != "lease" or any(entry.key not in core for entry in entries):
            raise
        return None


def _lake_offers(settings: Settings, *methods: str) -> bool:
    """Return whether the lake's plugin has these methods."""
    lake = published(LAKE_GROUP, settings.lake.type)
    return all(callable(getattr(lake, name, None)) for name in methods)


def _tables(path: Path, tables: Mapping[str, Any], provenance: dict[str, str]) -> dict[str, TableSettings]:
    rules: dict[str, TableSettings] = {}
    for pattern, body in tables.items():
        section = table_section(pattern)
        where = f"{path.name}: {section}"
        check_pattern(where, pattern, body)
        entries = [
            ConfigEntry(section, key, "", value, False, f"{where}.{key}", f"file {path.name}")
            for key, value in body.items()
        ]
        filled = fill(section, keys_of(TableSettings), entries, path.parent)
        provenance.update({key: origin for key, origin in filled.origins.items() if origin != "default"})
        rules[pattern] = TableSettings(**filled.values)
        check_partition(where, rules[pattern])
    return rules
