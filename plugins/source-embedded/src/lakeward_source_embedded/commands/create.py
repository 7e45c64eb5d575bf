"""`lakeward embedded create`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakeward.cli.extend import Invocation, pass_invocation, take_duration, with_common_options
from lakeward.errors import UsageError
from lakeward.model.tables import TablePath
from lakeward_source_embedded.columns import columns_text, parse_columns, type_text
from lakeward_source_embedded.commands.like import columns_like
from lakeward_source_embedded.commands.store_option import open_store, with_store_option
from lakeward_source_embedded.options import DEFAULT_FRESHNESS_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from lakeward.model.tables import TableSpec


@click.command("create")
@click.argument("table", metavar="DB.TABLE")
@click.option("--columns", metavar="TEXT", help='"id bigint not null, name string, at timestamp_ltz(3)".')
@click.option(
    "--like",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take the columns of a Parquet, CSV, JSON or Arrow file.",
)
@click.option("--change-column", metavar="NAME", help="Column of --like that says insert, update or delete; left out.")
@click.option("--primary-key", metavar="NAMES", help="Comma-separated; without it: a log (append-only) table.")
@click.option("--partition-by", metavar="NAMES", help="Comma-separated string columns.")
@click.option("--bucket-key", metavar="NAME", help="One column; default: the first of the primary key.")
@click.option("--buckets", type=click.IntRange(min=1), default=1, show_default=True, help="Of each partition.")
@click.option(
    "--freshness",
    callback=take_duration,
    metavar="TIME",
    default=f"{DEFAULT_FRESHNESS_S}s",
    show_default=True,
    help="Such as 500ms, 10s, 5min, 1h.",
)
@click.option("--property", "properties", metavar="KEY=VALUE", multiple=True, help="May be repeated.")
@with_store_option
@with_common_options
@pass_invocation
def create(
    invocation: Invocation,
    *,
    table: str,
    columns: str | None,
    like: Path | None,
    change_column: str | None,
    primary_key: str | None,
    partition_by: str | None,
    bucket_key: str | None,
    buckets: int,
    freshness: float,
    properties: tuple[str, ...],
    store: Path | None,
) -> None:
    """Create DB.TABLE, and the store if there is none.

    Types: boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), char(n), string, binary(n), bytes,
    date, time(p), timestamp(p), timestamp_ltz(p), array<T>, map<K,V>, row<NAME TYPE, ...>.
    """
    path = TablePath.parse(table)
    keys = (*_names(primary_key), *_names(partition_by))
    schema = _schema(columns, keys, like, change_column)
    with open_store(invocation, store, create=True) as opened:
        spec = opened.create_table(
            path,
            schema,
            primary_key=_names(primary_key),
            partition_keys=_names(partition_by),
            bucket_key=None if bucket_key is None else _names(bucket_key),
            buckets=buckets,
            freshness_s=freshness,
            properties=dict(_pairs(properties)),
        )
        document = {"table": str(path), "table_id": spec.table_id, "store": str(opened.root), "columns": schema.names}
        document |= {"types": {field.name: type_text(field.type) for field in spec.schema}}
        taken = [] if like is None else [f"Columns, as {like} has them: {columns_text(spec.schema)}."]
        invocation.output.show(document, f"Created {path} in {opened.root}: {_described(spec)}.", *taken)


def _schema(columns: str | None, keys: tuple[str, ...], like: Path | None, change_column: str | None) -> pa.Schema:
    if columns is not None and like is None:
        return parse_columns(columns, keys)
    if like is not None and columns is None:
        return columns_like(like, change_column)
    message = "columns: expected one of --columns and --like"
    raise UsageError(message)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _pairs(texts: Iterable[str]) -> Iterable[tuple[str, str]]:
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            message = f"--property: expected KEY=VALUE, found {text!r}"
            raise UsageError(message)
        yield key.strip(), value.strip()


def _described(spec: TableSpec) -> str:
    kind = f"primary key {', '.join(spec.primary_key)}" if spec.has_primary_key else "log table"
    parts = [f"{len(spec.schema)} columns", kind]
    if spec.partition_keys:
        parts.append(f"partitioned by {', '.join(spec.partition_keys)}")
    return ", ".join([*parts, f"{spec.buckets} bucket{'' if spec.buckets == 1 else 's'}"])
