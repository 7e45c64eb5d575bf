"""Render `docs/reference/config.md` and `docs/reference/plugin-keys.md` from the structs that declare the keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakeward.config.keys import Key, keys_of
from lakeward.config.loader import PLUGIN_SECTIONS, SECTIONS, plugin_options, section_keys, section_type
from lakeward.hooks.discovery import KINDS, extra_plugins
from lakeward.model.settings import TableSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = """\
# Configuration

One TOML file, `lakeward.toml` in the current directory unless `--config` or `LAKEWARD_CONFIG` names another. An
environment variable `LAKEWARD_SECTION__KEY` wins over the file, and a flag `--set section.key=value` over both.
A variable that is set, but empty, is refused where its key needs a value or is a secret.
`lakeward config show` says where each value came from, `lakeward config check` tries it out without starting
anything. Relative paths are relative to the file. `_s` at the end of a key means seconds; a text with a unit (`ms`,
`s`, `m` or `min`, `h`, `d`) is accepted too: `"500ms"`, `"30 s"`, `"5min"`, `"1 h"`. Seconds end at
1,000,000,000, other numbers at 2^63 - 1.

Inside a key that is itself a table, a further `__NAME` in the variable or `.name` in the flag names the entry:
`LAKEWARD_SPARK__CONF__SPARK__UI__PORT=4041`, `--set spark.conf.spark.ui.port=4041`.

This page is generated from the code; `tests/core/config/test_config_reference.py` keeps it so.
"""

_PLUGINS_HEAD = """\
# Keys of plugins

The further keys of `[source]`, `[lake]` and `[lease]` that the plugins of this project have, beside those of
[every configuration](config.md). A key that both have, such as `commit_timeout_s` of `[lake]`, is written once.

This page is generated from the code; `tests/meta/test_plugin_keys.py` keeps it so.
"""
_KEYS_OF_PLUGINS = (
    "Further keys are those of the {kind} that `{naming}` names: those of this project's are on a [page of their "
    "own](plugin-keys.md), those of any other one are documented by its package.\n"
)


def render_config() -> str:
    """Render the page: Markdown, a table for each section, the core's keys and those of the built-in source."""
    parts = [_HEAD]
    for section in SECTIONS:
        parts.append(_section(f"`[{section}]`", _meaning(section_type(section)), section_keys(section).values()))
        if section == "source":
            embedded: Any = plugin_options("source", "embedded")
            text = 'The further keys of `[source]` where `type = "embedded"`.'
            parts.append(_section("`[source]` of type `embedded`", text, keys_of(embedded).values()))
        if section in PLUGIN_SECTIONS:
            naming, group = PLUGIN_SECTIONS[section]
            parts.append(_KEYS_OF_PLUGINS.format(kind=KINDS[group], naming=naming))
    parts.append(_section('`[tables."db.*"]`', _meaning(TableSettings), keys_of(TableSettings).values()))
    return "\n".join(parts)


def render_plugin_keys() -> str:
    """Render the page of the keys that the plugins of this project add: Markdown, a table for each plugin.

    Raises:
        MissingPluginError: one of them is not installed; says which package to install.
    """
    parts = [_PLUGINS_HEAD]
    for section, (naming, group) in PLUGIN_SECTIONS.items():
        for name, distribution in extra_plugins(group).items():
            title = f'`[{section}]` with `{naming} = "{name}"`'
            declared = plugin_options(section, name)
            if declared is None:
                parts.append(f"## {title}\n\n`{distribution}` adds no key.\n")
            else:
                text = f"What `{distribution}` adds."
                parts.append(_section(title, text, keys_of(declared).values()))
    return "\n".join(parts)


def _meaning(declared: type[Any]) -> str:
    _, _, meaning = (declared.__doc__ or "").partition(": ")
    return meaning[:1].upper() + meaning[1:]


def _section(title: str, text: str, keys: Iterable[Key]) -> str:
    rows = [f"| `{key.name}` | {key.expected} | {_default(key)} | {key.description} |" for key in keys]
    head = ["| key | expected | default | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {title}", "", text, "", *head, *rows, ""])


def _default(key: Key) -> str:
    if key.required:
        return "none: must be given"
    value = key.default
    if value is None or (isinstance(value, tuple | Mapping | str) and not value):
        return "unset" if value is None else "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"
