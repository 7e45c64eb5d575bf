"""The page of the plugins' keys says what their options declare, and each plugin's README leads to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.config.keys import Key, keys_of
from lakeward.config.loader import PLUGIN_SECTIONS, plugin_options
from lakeward.config.reference import render_plugin_keys
from lakeward.errors import MissingPluginError
from lakeward.hooks.discovery import extra_plugins

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "plugin-keys.md"
PLUGINS = [(section, name) for section, (_, group) in PLUGIN_SECTIONS.items() for name in extra_plugins(group)]


def keys(section: str, name: str) -> dict[str, Key]:
    try:
        declared = plugin_options(section, name)
    except MissingPluginError as error:
        pytest.skip(f"not every plugin of the repository is installed here: {error}")
    return {} if declared is None else keys_of(declared)


def test_the_page_of_the_plugins_keys_is_what_the_code_says() -> None:
    for section, name in PLUGINS:
        keys(section, name)
    assert PAGE.read_text(encoding="utf-8") == render_plugin_keys(), "python -m lakeward.cli.reference docs/reference"


@pytest.mark.parametrize(("section", "name"), PLUGINS)
def test_each_key_of_a_plugin_is_described(section: str, name: str) -> None:
    assert [key.name for key in keys(section, name).values() if not key.description] == []


@pytest.mark.parametrize(("section", "name"), PLUGINS)
def test_the_readme_of_a_plugin_with_keys_leads_to_the_page(section: str, name: str) -> None:
    text = (ROOT / "plugins" / f"{section}-{name}" / "README.md").read_text(encoding="utf-8")
    assert ("(../../docs/reference/plugin-keys.md)" in text) == bool(keys(section, name))
