"""`lakeward config init`."""

from __future__ import annotations

from pathlib import Path

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.config.entries import DEFAULT_FILE
from lakeward.config.example import starter
from lakeward.errors import StorageError, UsageError


@click.command("init")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--name", default="lakeward", show_default=True, help="Name of the service.")
@with_common_options
@pass_invocation
def init(invocation: Invocation, *, file: Path | None, name: str) -> None:
    """Write a configuration to start from, to FILE (default: that of --config, else ./lakeward.toml).

    A file that is there already is not touched.
    """
    path = file or invocation.config or Path(DEFAULT_FILE)
    _write(path, starter(name))
    invocation.output.show({"file": str(path)}, f"Wrote {path}. Try it with: lakeward config check --config {path}")


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError as error:
        message = f"{path}: is there already, and is not overwritten"
        raise UsageError(message) from error
    except OSError as error:
        message = f"{path}: cannot be written ({error.strerror or error})"
        raise StorageError(message) from error
