"""What a table stores of its snapshots, read for `lakeward verify` without the code of the writers."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.errors import LakeError, StorageError
from lakeward_lake_paimon.avro_file import AvroError, read_avro

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward_lake_paimon.storage import Storage

DELETED = 1
Json = dict[str, Any]
EntryKey = tuple[bytes, int, str, int]
"""Partition, bucket, name and level of a file."""
_NUMBERED = re.compile(r"(?:schema|snapshot)-(\d+)")


@contextmanager
def read_errors(what: str) -> Iterator[None]:
    """Turn an error of reading into one that says what was read.

    Raises:
        LakeError: it is gone, or cannot be read.
    """
    try:
        yield
    except FileNotFoundError as gone:
        message = f"{what} cannot be read: {gone} is not there; if the snapshot has expired meanwhile, try again"
        raise LakeError(message) from gone
    except (OSError, StorageError, AvroError, KeyError, ValueError, pa.ArrowException) as broken:
        message = f"{what} cannot be read: {broken}"
        raise LakeError(message) from broken


class StoredTable:
    """The files of one table. Methods raise what `read_errors` turns into words."""

    def __init__(self, storage: Storage, location: str) -> None:
        """Read nothing yet; `location` is the table's folder."""
        self.storage = storage
        self.location = location
        self._schemas: dict[int, Json] = {}

    def snapshot_path(self, number: int) -> str:
        """Return the path of a snapshot's file."""
        return f"{self.location}/snapshot/snapshot-{number}"

    def snapshot(self, number: int) -> Json:
        """Return what a snapshot's file says."""
        said: Json = json.loads(self.read(self.snapshot_path(number)))
        return said

    def snapshot_ids(self) -> list[int]:
        """Return the ids of the snapshots that are there, ascending."""
        return self._numbers("snapshot")

    def schema_ids(self) -> list[int]:
        """Return the ids of all schemas, ascending."""
        return self._numbers("schema")

    def schema(self, number: int) -> Json:
        """Return what a schema's file says."""
        if number not in self._schemas:
            self._schemas[number] = json.loads(self.read(f"{self.location}/schema/schema-{number}"))
        return self._schemas[number]

    def manifest_path(self, name: str) -> str:
        """Return the path of a manifest, or of a list of manifests."""
        return f"{self.location}/manifest/{name}"

    def records(self, name: str) -> list[Json]:
        """Return the records of a manifest, or of a list of manifests."""
        path = self.manifest_path(name)
        data = self.read(path)
        try:
            return list(read_avro(data))
        except AvroError as broken:
            message = f"{path}: {broken}"
            raise AvroError(message) from broken

    def folders(self) -> dict[str, str]:
        """Return the path of each data file by its name: names are unique, and so no partition has to be named."""
        found = self.storage.list(self.location)
        return {one.rpartition("/")[2]: one for one in found if one.endswith(".parquet")}

    def read(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises:
            FileNotFoundError: it is not there.
        """
        found = self.storage.read(path)
        if found is None:
            raise FileNotFoundError(path)
        return found

    def _numbers(self, folder: str) -> list[int]:
        matches = (_NUMBERED.fullmatch(name) for name in self.storage.names(f"{self.location}/{folder}"))
        return sorted(int(found[1]) for found in matches if found)


def live_entries(entries: Iterable[Json]) -> tuple[dict[EntryKey, Json], list[tuple[Json, str]]]:
    """Return the entries of the files that are there, and those that make no sense, with what is wrong of them."""
    live: dict[EntryKey, Json] = {}
    gone: dict[EntryKey, Json] = {}
    wrong: list[tuple[Json, str]] = []
    for entry in entries:
        file = entry["_FILE"]
        key = (entry["_PARTITION"], entry["_BUCKET"], file["_FILE_NAME"], file["_LEVEL"])
        if entry["_KIND"] == DELETED:
            if live.pop(key, None) is None:
                gone[key] = entry
        elif gone.pop(key, None) is None:  # manifests are merged: a file may be taken away before it is added
            wrong += [(entry, "added a second time")] if key in live else []
            live[key] = entry
    return live, [*wrong, *((entry, "taken away, though it was not there") for entry in gone.values())]
