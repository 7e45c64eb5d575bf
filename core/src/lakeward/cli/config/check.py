"""`lakeward config check`."""

from __future__ import annotations

import click

from lakeward.cli.checks import show_checks
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.container import check as build


@click.command("check")
@click.option("--write", is_flag=True, help="Test that state can be written: write a file and delete it.")
@with_common_options
@pass_invocation
def check(invocation: Invocation, *, write: bool) -> int:
    """Build everything that the configuration names, without starting it; exit code 1 if something does not fit.

    Nothing is created: permissions show whether state can be written, unless `--write` is given.
    """
    return show_checks(invocation, build(invocation.load(), write=write))
