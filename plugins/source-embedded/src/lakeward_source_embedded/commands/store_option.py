"""Opens the store of a command: `--store`, or else the configured one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakeward.cli.extend import use_arrow_alone
from lakeward.errors import ConfigError
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from lakeward.cli.extend import Invocation

with_store_option = click.option(
    "--store",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory of the store; default: the path of [source] in the configuration.",
)


def open_store(invocation: Invocation, store: Path | None, *, create: bool = False) -> EmbeddedStore:
    """Open the store that a command is about, the value of `--store`; the caller closes it.

    With `create`, it is created if there is none.

    Raises:
        ConfigError: no store is named, or there is none.
    """
    use_arrow_alone()
    directory = store or _configured(invocation)
    return EmbeddedStore.create(directory) if create else EmbeddedStore.open(directory)


def _configured(invocation: Invocation) -> Path:
    loaded = invocation.load()
    key, kind = "source.type", loaded.settings.source.type
    if kind != "embedded":
        raise ConfigError(key, "'embedded'", kind, "Name the store's directory with --store.")
    return Path(loaded.source_options.path)
