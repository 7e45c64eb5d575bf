"""`lakeward embedded list`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.extend import Columns, Invocation, count, pass_invocation, seconds, with_common_options
from lakeward_source_embedded.commands.store_option import open_store, with_store_option

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.tables import TableSpec
    from lakeward_source_embedded.store import EmbeddedStore


@click.command("list")
@with_store_option
@with_common_options
@pass_invocation
def list_tables(invocation: Invocation, *, store: Path | None) -> None:
    """Show the tables of the store: keys, buckets, log records, newest KV snapshots, promised freshness."""
    with open_store(invocation, store) as opened:
        tables = [_table(opened, spec) for spec in opened.tables()]
        document = {"store": str(opened.root), "options": opened.options(), "tables": tables}
    text = _columns(tables) if tables else f"{document['store']} has no table."
    invocation.output.show(document, text)


def _columns(tables: list[dict[str, Any]]) -> Columns:
    names = ("table", "primary key", "partitioned by", "columns#", "buckets#", "records#", "snapshots#", "freshness#")
    rows = [
        (
            table["table"],
            ", ".join(table["primary_key"]) or ("(unreadable)" if table["unreadable"] else "(log table)"),
            ", ".join(table["partition_keys"]),
            len(table["columns"]),
            count(table["buckets"]),
            count(table["end"]),
            count(table["snapshots"]),
            seconds(table["freshness_s"]),
        )
        for table in tables
    ]
    return Columns(names, rows)


def _table(store: EmbeddedStore, spec: TableSpec) -> dict[str, Any]:
    states = store.catalog.buckets(spec)
    return {
        "table": str(spec.path),
        "table_id": spec.table_id,
        "columns": {field.name: _type(field) for field in spec.schema},
        "primary_key": list(spec.primary_key),
        "partition_keys": list(spec.partition_keys),
        "bucket_key": list(spec.bucket_key),
        "buckets": len(states),
        "end": sum(state.end for state in states),
        "snapshots": sum(1 for state in states if state.snapshot is not None),
        "freshness_s": spec.freshness_s,
        "properties": dict(spec.properties),
        "unreadable": spec.unreadable,
    }


def _type(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
