from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from lakeward.cli.main import lakeward
from lakeward.config.entries import from_document
from lakeward.config.keys import keys_of
from lakeward.config.loader import ALL_SECTIONS, PLUGIN_SECTIONS, plugin_options, section_keys
from lakeward.config.sections import fill
from lakeward.errors import MissingPluginError
from lakeward.model.settings import TableSettings

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
SHELLS = {"console", "sh", "bash", "shell"}


@dataclass(frozen=True)
class Block:
    """A fenced block of code in a page."""

    page: str
    line: int
    language: str
    code: str

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return the pages that people read."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("core/*.md"), *ROOT.glob("plugins/*/*.md")]
    return sorted(found)


def blocks(*languages: str) -> list[Block]:
    """Return the blocks of code of these languages in all pages."""
    return [
        Block(str(page.relative_to(ROOT)), text.count("\n", 0, match.start()) + 1, match["language"], match["code"])
        for page in pages()
        for text in [page.read_text(encoding="utf-8")]
        for match in FENCE.finditer(text)
        if match["language"] in languages
    ]


def lakeward_lines(block: Block) -> list[list[str]]:
    """Return the words of each line that calls `lakeward`."""
    joined = re.sub(r"\\\n\s*", " ", block.code)
    prompt = "$ " if block.language == "console" else ""
    lines = [line.strip() for line in joined.splitlines()]
    calls = [line.removeprefix("$ ") for line in lines if line.startswith(f"{prompt}lakeward ")]
    return [shlex.split(re.split(r" (?:\||&&|>|;) ?", call)[0], comments=True)[1:] for call in calls]


def find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """Follow words to a command, and return what is left of them."""
    command: click.Command = lakeward
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        context = click.Context(command)
        found = command.get_command(context, words[0])
        assert found is not None, f"no command {words[0]!r} below {command.name}"
        command, words = found, words[1:]
    return command, words


def options_of(command: click.Command) -> set[str]:
    """Return all options that a command takes; a group's own command is meant where none is named."""
    names = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}
    default = getattr(command, "_default", None)
    if isinstance(command, click.Group) and default:
        names |= options_of(command.get_command(click.Context(command), default) or command)
    return names | {"--help"}


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.place)
def test_python_in_the_docs_compiles(block: Block) -> None:
    compile(block.code, block.place, "exec")


@pytest.mark.parametrize("block", blocks("toml"), ids=lambda block: block.place)
def test_toml_in_the_docs_names_sections_and_keys_that_exist(block: Block) -> None:
    document: dict[str, Any] = tomllib.loads(block.code)
    if not set(document) <= set(ALL_SECTIONS):
        pytest.skip("not a configuration of Lakeward")
    by_section: dict[str, list[Any]] = {name: [] for name in document}
    for entry in from_document(document, Path(block.page), ALL_SECTIONS):
        by_section[entry.section].append(entry)
    for section, entries in by_section.items():
        if section == "tables":
            assert {key for body in document["tables"].values() for key in body} <= set(keys_of(TableSettings))
            continue
        keys = section_keys(section)
        if section in PLUGIN_SECTIONS and not {entry.key for entry in entries} <= set(keys):
            naming = PLUGIN_SECTIONS[section][0]
            try:
                options = plugin_options(section, document[section].get(naming, keys[naming].default))
            except MissingPluginError as error:
                pytest.skip(str(error))
            assert options is not None
            keys = {**keys_of(options), **keys}
        # A piece of a configuration may leave out what must be given: only what is there is checked.
        given = {entry.key for entry in entries}
        fill(section, {name: key for name, key in keys.items() if name in given or not key.required}, entries, ROOT)


@pytest.mark.parametrize(
    "block", [block for block in blocks(*SHELLS) if lakeward_lines(block)], ids=lambda block: block.place
)
def test_commands_in_the_docs_exist_with_their_options(block: Block) -> None:
    for words in lakeward_lines(block):
        command, rest = find_command(words)
        unknown = {word.split("=")[0] for word in rest if word.startswith("-")} - options_of(command)
        assert not unknown, f"{block.place}: lakeward {' '.join(words)}"
