"""Reads a snapshot as any other program would, for `lakeward verify`: what the writers use is not used.

Rows of a key table are merged bucket by bucket: each file of level 0 is a sorted run, and so are the files of each
other level together.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import LakeError
from lakeward.ports.lake import LOST_COLUMNS
from lakeward_lake_paimon.kinds import arrow_type, parse_kind
from lakeward_lake_paimon.merging import merge_runs
from lakeward_lake_paimon.parquet_batches import read_batches
from lakeward_lake_paimon.snapshot_files import StoredTable, live_entries, read_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakeward_lake_paimon.kinds import Kind
    from lakeward_lake_paimon.storage import Storage

_BATCH_ROWS = 65_536
_KEY = "_KEY_"
_GONE_KINDS = pa.array([1, 3], pa.int8())
"""Row kinds of rows that are no more: from before an update, and deleted."""


def snapshot_rows(storage: Storage, location: str, snapshot_id: int) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a snapshot; see `lakeward.ports.ReadableLake.read_rows`.

    Raises:
        LakeError: the snapshot, or a file of it, is gone or cannot be read.
    """
    with read_errors(f"{location}: snapshot {snapshot_id}"):
        reader = _Reader(StoredTable(storage, location), snapshot_id)
        yield pa.RecordBatch.from_arrays([pa.nulls(0, one.type) for one in reader.schema], schema=reader.schema)
        yield from reader.rows()


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    level: int
    schema_id: int
    first_sequence: int
    first_key: bytes


class _Reader:
    """Reads one snapshot."""

    def __init__(self, stored: StoredTable, snapshot_id: int) -> None:
        self._stored = stored
        self._storage = stored.storage
        self._id = snapshot_id
        said = stored.snapshot(snapshot_id)
        self._lists = (said["baseManifestList"], said["deltaManifestList"])
        self._now = stored.schema(stored.schema_ids()[-1])
        kinds = {one["name"]: parse_kind(one["type"]) for one in self._now["fields"]}
        columns = pa.schema([(name, arrow_type(kind)) for name, kind in kinds.items()])
        self.schema = columns.with_metadata({LOST_COLUMNS: json.dumps(_lost_columns(stored)).encode()})

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most `_BATCH_ROWS` in a batch for each run of a bucket."""
        for files in self._buckets().values():
            tables = self._merged(files) if self._now["primaryKeys"] else self._appended(files)
            for table in tables:
                yield from table.to_batches()

    def _buckets(self) -> Mapping[tuple[bytes, int], list[_File]]:
        manifests = [manifest for name in self._lists for manifest in self._stored.records(name)]
        entries = (entry for one in manifests for entry in self._stored.records(one["_FILE_NAME"]))
        live, wrong = live_entries(entries)
        if wrong:
            entry, what = wrong[0]
            message = f"a manifest says that {entry['_FILE']['_FILE_NAME']} is {what}"
            raise LakeError(message)
        found: dict[tuple[bytes, int], list[_File]] = defaultdict(list)
        folders = self._stored.folders()
        for (partition, bucket, name, level), entry in live.items():
            file = entry["_FILE"]
            path = file.get("_EXTERNAL_PATH") or folders.get(name)
            if path is None:
                message = f"{self._named(name)} is not there; if the snapshot has expired meanwhile, try again"
                raise LakeError(message)
            numbers = (level, file["_SCHEMA_ID"], file["_MIN_SEQUENCE_NUMBER"])
            found[partition, bucket].append(_File(path, *numbers, file["_MIN_KEY"]))
        return found

    def _appended(self, files: Iterable[_File]) -> Iterator[pa.Table]:
        for file in sorted(files, key=lambda one: one.first_sequence):
            yield from self._tables(file, ())

    def _merged(self, files: Iterable[_File]) -> Iterator[pa.Table]:
        keys = [name for name in self._now["primaryKeys"] if name not in self._now["partitionKeys"]]
        system = [*(f"{_KEY}{name}" for name in keys), "_SEQUENCE_NUMBER", "_VALUE_KIND"]
        levels: dict[object, list[_File]] = defaultdict(list)
        for file in files:
            levels[file.path if not file.level else file.level].append(file)
        runs = [self._run(one, system) for one in levels.values()]
        for rows in merge_runs(runs, system[: len(keys)]):
            gone = pc.is_in(rows.column("_VALUE_KIND"), value_set=_GONE_KINDS)
            yield rows.filter(pc.invert(gone)).drop_columns(system)

    def _run(self, files: list[_File], system: list[str]) -> Iterator[pa.Table]:
        """Yield the rows of one sorted run; the first row of each file says where it stands among the others."""
        keys = [name for name in system if name.startswith(_KEY)]
        if len(files) > 1:
            firsts = pa.concat_tables([self._first(one, keys) for one in files])
            order = pc.sort_indices(firsts, sort_keys=[(name, "ascending") for name in keys])
            files = [files[place.as_py()] for place in order]
        for file in files:
            yield from self._tables(file, system)

    def _first(self, file: _File, keys: list[str]) -> pa.Table:
        with read_errors(self._named(file.path)), self._storage.open(file.path) as source:
            batch = next(read_batches(source, self._kinds(file), 1))
            return pa.table({name: self._key(batch, name) for name in keys})

    def _key(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """Return a system column of a file; that of a key in its type of now, as other files may have it."""
        column = batch.column(name)
        return pc.cast(column, self.schema.field(name[len(_KEY) :]).type) if name.startswith(_KEY) else column

    def _tables(self, file: _File, system: Iterable[str]) -> Iterator[pa.Table]:
        """Yield a file's rows in the table's columns of now: a column is known by its id, whatever it was called."""
        with read_errors(self._named(file.path)), self._storage.open(file.path) as source:
            yield from self._batches(source, file, system)

    def _named(self, path: str) -> str:
        return f"{self._stored.location}: file {path} of snapshot {self._id}"

    def _then(self, file: _File) -> dict[int, str]:
        """Return the names that the columns had when a file was written, by their ids."""
        return {one["id"]: one["name"] for one in self._stored.schema(file.schema_id)["fields"]}

    def _kinds(self, file: _File) -> dict[str, Kind]:
        """Return the types that a file's columns had when it was written."""
        kinds = {one["name"]: parse_kind(one["type"]) for one in self._stored.schema(file.schema_id)["fields"]}
        return {**kinds, **{f"{_KEY}{name}": kind for name, kind in kinds.items()}}

    def _batches(self, source: pa.NativeFile, file: _File, system: Iterable[str]) -> Iterator[pa.Table]:
        then = self._then(file)
        for batch in read_batches(source, self._kinds(file), _BATCH_ROWS):
            columns, held = {name: self._key(batch, name) for name in system}, set(batch.schema.names)
            for field, one in zip(self.schema, self._now["fields"], strict=True):
                name = then.get(one["id"])
                there = name is not None and name in held
                columns[field.name] = (
                    pc.cast(batch.column(name), field.type) if there else pa.nulls(batch.num_rows, field.type)
                )
            yield pa.table(columns)


def _lost_columns(stored: StoredTable) -> dict[str, str]:
    """Return each column that an earlier schema has and the present one has not, and what became of it.

    Lakeward only ever adds columns.
    """
    schemas = [stored.schema(number) for number in stored.schema_ids()]
    present = {one["id"]: one["name"] for one in schemas[-1]["fields"]}
    lost: dict[str, str] = {}
    for schema in schemas:
        for field in schema["fields"]:
            if field["name"] not in present.values():
                now = present.get(field["id"])
                lost[field["name"]] = (
                    "somebody else dropped it" if now is None else f"somebody else renamed it to {now!r}"
                )
    return lost
