"""`lakeward embedded describe`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.extend import Columns, Invocation, pass_invocation, seconds, with_common_options
from lakeward.model.tables import TablePath
from lakeward_source_embedded.columns import type_text
from lakeward_source_embedded.commands.store_option import open_store, with_store_option

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.tables import BucketState, TableSpec


@click.command("describe")
@click.argument("table", metavar="DB.TABLE")
@with_store_option
@with_common_options
@pass_invocation
def describe(invocation: Invocation, *, table: str, store: Path | None) -> None:
    """Show the columns of DB.TABLE in the words of `create`, its keys, buckets, offsets and properties."""
    path = TablePath.parse(table)
    with open_store(invocation, store) as opened:
        spec, states = opened.table(path), opened.buckets(path)
    columns = [_column(spec, field) for field in spec.schema]
    buckets = [_bucket(state) for state in states]
    document = {
        "table": str(path),
        "table_id": spec.table_id,
        "schema_id": spec.schema_id,
        "columns": columns,
        "primary_key": list(spec.primary_key),
        "partition_keys": list(spec.partition_keys),
        "bucket_key": list(spec.bucket_key),
        "buckets": buckets,
        "freshness_s": spec.freshness_s,
        "properties": dict(spec.properties),
    }
    kind = f"primary key {', '.join(spec.primary_key)}" if spec.has_primary_key else "log table"
    invocation.output.show(
        document,
        f"{path}: {kind}, table id {spec.table_id}, schema {spec.schema_id}, freshness {seconds(spec.freshness_s)}",
        "",
        Columns(("column", "type", "null", "key"), [tuple(column.values()) for column in columns]),
        "",
        Columns(
            ("partition", "bucket#", "log from#", "to#", "snapshot#", "at offset#"),
            [tuple(bucket.values()) for bucket in buckets],
        ),
        "",
        Columns(("property", "value"), sorted(spec.properties.items())),
    )


def _column(spec: TableSpec, field: pa.Field) -> dict[str, Any]:
    keys = {"primary": spec.primary_key, "bucket": spec.bucket_key, "partition": spec.partition_keys}
    of = ", ".join(name for name, columns in keys.items() if field.name in columns)
    return {"name": field.name, "type": type_text(field.type), "null": "yes" if field.nullable else "no", "key": of}


def _bucket(state: BucketState) -> dict[str, Any]:
    snapshot = state.snapshot
    return {
        "partition": "/".join(state.partition),
        "bucket": state.bucket.bucket,
        "start": state.start,
        "end": state.end,
        "snapshot_id": None if snapshot is None else snapshot.snapshot_id,
        "snapshot_offset": None if snapshot is None else snapshot.log_offset,
    }
