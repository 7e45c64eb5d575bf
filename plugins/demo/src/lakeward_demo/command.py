"""The command `lakeward demo`."""

from __future__ import annotations

from pathlib import Path

import click

from lakeward.cli.extend import Invocation, pass_invocation, with_common_options
from lakeward_demo.lakes import ICEBERG, PAIMON
from lakeward_demo.store import EMBEDDED, FLUSS

DAYS = 31
"""Days that are fed while the service runs, about one each second: the whole of March, several rounds per table."""


@click.command("demo", short_help="Watch it work: a table of flights reaches Iceberg or Paimon.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("lakeward-demo"),
    show_default=True,
    metavar="DIR",
    help="Made afresh; only the directory of an earlier demo is ever emptied.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 306),
    default=DAYS,
    show_default=True,
    help="Days from 2013-03-01 on that are fed while the service runs, about one each second.",
)
@click.option(
    "--source",
    type=click.Choice([EMBEDDED, FLUSS]),
    default=EMBEDDED,
    show_default=True,
    help="Where the rows come from: the embedded store, or a private throw-away cluster of Fluss.",
)
@click.option(
    "--lake",
    type=click.Choice([ICEBERG, PAIMON]),
    default=ICEBERG,
    show_default=True,
    help="Where the rows go.",
)
@with_common_options
@pass_invocation
def demo(invocation: Invocation, *, directory: Path, days: int, source: str, lake: str) -> int:
    """Watch it work: all flights from New York in 2013 reach the lake on Spark, then a proof and how to query them.

    Two months are there before the service starts; another process feeds the days that follow while it runs.
    A scheduled flight is an insert, its departure and its arrival are updates, a cancelled flight is a delete.
    The store cleans superseded KV snapshots away as it goes; a lease keeps those that are being read.

    `nyc.flights`, whose data lake is enabled, is tiered. The others are mirrored, into partitions that the source does
    not have: `nyc.board` by month and airport, and `nyc.events` by month and bucket, for which its rows are exchanged
    between subtasks. The cluster of `--source fluss` lives as long as the demo.
    """
    from lakeward_demo.story import run_demo  # noqa: PLC0415 - the feeder's process does without Spark

    return run_demo(invocation, directory, days, source, lake)
