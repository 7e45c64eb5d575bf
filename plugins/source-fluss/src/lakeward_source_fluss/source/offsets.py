"""Offsets files: what a tiering service prepared at the server, in its remote data directory.

Source: fluss.md, "Lake snapshots".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lakeward.errors import CorruptFileError, NewerSourceError, SourceError, StorageError
from lakeward.model.tables import TableBucket, TableSpec
from lakeward_source_fluss.formats.storage import Storage

_VERSION = 1
_UNKNOWN = -1
"""Stands for a bucket that was never tiered."""


def read_offsets(storage: Storage, table: TableSpec, path: str) -> Mapping[TableBucket, int]:
    """Read an offsets file: the next offset to tier of each bucket that was ever tiered.

    It lies in the server's remote data directory, at the path that PREPARE gave, and should be of this table.

    Raises:
        SourceError: there is no such file, or it holds the JSON of a service before 0.9.
        CorruptFileError: it is no offsets file of this table.
        NewerSourceError: a version of its format that is not known.
        StorageError: the storage refused.
    """
    if "{" in path:
        message = f"table {table.path}: expected the path of an offsets file, found JSON (a service before Fluss 0.9)"
        raise SourceError(message)
    try:
        system, place = storage.locate(path)
        with system.open_input_stream(place) as stream:
            text = bytes(stream.read())
    except FileNotFoundError as missing:
        message = f"table {table.path}: the offsets file {path} is not there"
        raise SourceError(message) from missing
    except OSError as refused:
        message = f"{path}: the offsets file cannot be read: {refused}"
        raise StorageError(message) from refused
    return parse_offsets(text, table.table_id, path)


def parse_offsets(text: bytes, table_id: int, file: str) -> Mapping[TableBucket, int]:
    """Read the JSON of an offsets file.

    Raises:
        CorruptFileError: it is none of this table.
        NewerSourceError: a version of the format that is not known.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("version"), int):
        raise CorruptFileError(file, f"a JSON object of version {_VERSION}", text[:80])
    if document["version"] != _VERSION:
        raise NewerSourceError.at(file, f"an offsets file of version {_VERSION}", document["version"])
    if document.get("table_id") != table_id:
        raise CorruptFileError(file, f"offsets of table {table_id}", document.get("table_id"))
    return dict(_entries(document, table_id, file))


def _entries(document: dict[str, Any], table_id: int, file: str) -> Iterator[tuple[TableBucket, int]]:
    yield from _buckets(document.get("bucket_offsets", []), TableBucket(table_id, None, 0), file)
    partitions = document.get("partition_offsets", [])
    if not isinstance(partitions, list):
        raise CorruptFileError(file, "a list of partitions", partitions)
    for partition in partitions:
        number = partition.get("partition_id") if isinstance(partition, dict) else None
        if not isinstance(number, int):
            raise CorruptFileError(file, "partitions with an id", partition)
        yield from _buckets(partition.get("bucket_offsets"), TableBucket(table_id, number, 0), file)


def _buckets(values: object, first: TableBucket, file: str) -> Iterator[tuple[TableBucket, int]]:
    if not isinstance(values, list) or not all(isinstance(value, int) and value >= _UNKNOWN for value in values):
        raise CorruptFileError(file, "a list of offsets", values)
    for bucket, offset in enumerate(values):
        if offset != _UNKNOWN:
            yield TableBucket(first.table_id, first.partition_id, bucket), offset
