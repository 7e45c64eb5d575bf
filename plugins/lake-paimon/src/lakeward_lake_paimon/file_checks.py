"""Compares what a snapshot says of its files with the files themselves: places, counts, bounds, keys, numbers.

Readers leave out files by it, or merge rows in a wrong order, so a wrong word hides rows that are all there. Data files
are those of the snapshot, changelog files those of all snapshots up to it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lakeward.errors import LakeError, LakewardError
from lakeward_lake_paimon.file_rows import FileRows
from lakeward_lake_paimon.kinds import parse_kind
from lakeward_lake_paimon.manifest_checks import check_counts, check_list, difference
from lakeward_lake_paimon.snapshot_files import StoredTable, live_entries, read_errors
from lakeward_lake_paimon.stored_values import NoRowError, ordered, read_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakeward.ports import FileDifference
    from lakeward_lake_paimon.kinds import Kind
    from lakeward_lake_paimon.snapshot_files import Json
    from lakeward_lake_paimon.storage import Storage

_LISTS = "baseManifestList", "deltaManifestList", "changelogManifestList"


@dataclass(frozen=True, slots=True)
class _Named:
    """A file that an entry names; `snapshot` is the one that needs it."""

    entry: Json
    snapshot: int
    changelog: bool

    @property
    def name(self) -> str:
        return str(self.entry["_FILE"]["_FILE_NAME"])


def wrong_in_files(storage: Storage, location: str, snapshot_id: int, most: int | None) -> Iterator[FileDifference]:
    """Yield what a snapshot says wrongly of its files; see `lakeward.ports.FileCheckedLake`."""
    stored = StoredTable(storage, location)
    with read_errors(f"{location}: snapshot {snapshot_id}"):
        yield from _Checks(stored, snapshot_id).differences(most)


class _Checks:
    """Checks one snapshot."""

    def __init__(self, stored: StoredTable, snapshot_id: int) -> None:
        self._stored = stored
        self._id = snapshot_id
        self._snapshot = stored.snapshot(snapshot_id)
        self._schemas = {number: stored.schema(number) for number in stored.schema_ids()}
        self._now = self._schemas[max(self._schemas)]

    def differences(self, most: int | None) -> Iterator[FileDifference]:
        base, delta = (check_list(self._stored, self._snapshot, name) for name in _LISTS[:2])
        live, senseless = live_entries([*base.entries, *delta.entries])
        yield from (*base.differences, *delta.differences)
        counts = {"totalRecordCount": base.rows + delta.rows, "deltaRecordCount": delta.rows}
        yield from check_counts(self._stored, self._snapshot, counts)
        places = _Places(self._stored)
        for entry, what in senseless:
            yield difference(places.claimed(entry), "entry of a manifest", "a file that is there once", what)
        entries = list(live.values())
        yield from _bucket_counts(places, entries, self._schemas)
        yield from _levels(places, entries, self._schemas)
        named = [_Named(entry, self._id, changelog=False) for entry in entries]
        for number in self._stored.snapshot_ids():
            if number <= self._id:
                found, wrong = self._changelog(number)
                named += found
                yield from wrong
        for one in _sample(named, most):
            yield from self._file(places, one)

    def _changelog(self, number: int) -> tuple[list[_Named], list[FileDifference]]:
        """Return the changelog files of a snapshot; none of one that has expired meanwhile."""
        try:
            snapshot = self._stored.snapshot(number)
            checked = check_list(self._stored, snapshot, _LISTS[2])
        except FileNotFoundError:
            if self._is_there(number):
                raise
            return [], []
        counts = check_counts(self._stored, snapshot, {"changelogRecordCount": checked.rows})
        named = [_Named(entry, number, changelog=True) for entry in checked.entries]
        return named, [*checked.differences, *counts]

    def _is_there(self, number: int) -> bool:
        return self._stored.storage.exists(self._stored.snapshot_path(number))

    def _file(self, places: _Places, named: _Named) -> Iterator[FileDifference]:
        path = places.of(named.entry)
        if path is None:
            if self._is_there(named.snapshot):
                found = f"named by snapshot {named.snapshot}"
                yield difference(places.claimed(named.entry), "file", "none of that name", found)
            elif not named.changelog:
                message = f"{self._stored.location}: snapshot {self._id} has expired meanwhile; try again"
                raise LakeError(message)
            return
        with read_errors(f"{self._stored.location}: file {path} of snapshot {named.snapshot}"):
            yield from places.wrong(named.entry, path)
            yield from self._rows(named, path)

    def _rows(self, named: _Named, path: str) -> Iterator[FileDifference]:
        entry, number = named.entry, named.entry["_FILE"]["_SCHEMA_ID"]
        then = self._schemas.get(number)
        if then is None:
            yield difference(path, "schema", f"one of {sorted(self._schemas)}", number)
            return
        bucket = entry["_BUCKET"] if _buckets(self._now) > 0 else None
        rows = FileRows(entry, then, bucket, changelog=named.changelog)
        try:
            yield from rows.differences(self._stored.storage, path)
        except LakewardError:
            if named.changelog and not self._is_there(named.snapshot):
                return  # it has expired meanwhile, with its file
            raise


class _Places:
    """Where files lie, and where entries say that they do."""

    def __init__(self, stored: StoredTable) -> None:
        self._stored = stored
        self._paths = stored.folders()

    def of(self, entry: Json) -> str | None:
        """Return the path of a file, None where there is none of its name."""
        elsewhere = entry["_FILE"].get("_EXTERNAL_PATH")
        if elsewhere:
            return str(elsewhere) if self._stored.storage.exists(elsewhere) else None
        return self._paths.get(entry["_FILE"]["_FILE_NAME"])

    def claimed(self, entry: Json) -> str:
        """Return how a file is called in messages: its path, or its bucket and its name where it is not there."""
        return self.of(entry) or f"bucket-{entry['_BUCKET']}/{entry['_FILE']['_FILE_NAME']}"

    def wrong(self, entry: Json, path: str) -> Iterator[FileDifference]:
        """Yield what is wrong of a place: readers make it of bucket and partition."""
        file = entry["_FILE"]
        folder, _, _ = path.rpartition("/")
        beside = [
            name for name in file.get("_EXTRA_FILES") or () if not self._stored.storage.exists(f"{folder}/{name}")
        ]
        for name in beside:
            yield difference(f"{folder}/{name}", "file", "none of that name", f"named beside {file['_FILE_NAME']}")
        if file.get("_EXTERNAL_PATH"):
            return
        bucket = folder.rpartition("/")[2]
        if bucket != f"bucket-{entry['_BUCKET']}":
            yield difference(path, "bucket", bucket, f"bucket-{entry['_BUCKET']}")


def _sample(named: Sequence[_Named], most: int | None) -> Sequence[_Named]:
    """Return so many files, spread over all of them."""
    if most is None or most >= len(named):
        return named
    return [named[number * len(named) // most] for number in range(most)]


def _buckets(schema: Json) -> int:
    return int(schema["options"].get("bucket", "-1"))


def _bucket_counts(places: _Places, entries: Sequence[Json], schemas: Mapping[int, Json]) -> Iterator[FileDifference]:
    """Yield files whose number of buckets no schema has, or another one than their partition, or no such bucket."""
    known = sorted({_buckets(schema) for schema in schemas.values()})
    if known[-1] <= 0:
        return
    first: dict[bytes, int] = {}
    for entry in entries:
        total, bucket = entry["_TOTAL_BUCKETS"], entry["_BUCKET"]
        there = first.setdefault(entry["_PARTITION"], total)
        if total not in known:
            yield difference(places.claimed(entry), "number of buckets", f"one of {known}", total)
        elif total != there:
            yield difference(places.claimed(entry), "number of buckets", f"{there} as in its partition", total)
        elif not 0 <= bucket < total:
            yield difference(places.claimed(entry), "bucket", f"one below {total}", bucket)


def _levels(places: _Places, entries: Sequence[Json], schemas: Mapping[int, Json]) -> Iterator[FileDifference]:
    """Yield files of a level above 0 whose keys overlap with those of another one: readers take them for one run."""
    kinds = {number: _key_kinds(schema) for number, schema in schemas.items()}
    runs: dict[tuple[bytes, int, int], list[tuple[list[Any], list[Any], Json]]] = defaultdict(list)
    for entry in entries:
        file = entry["_FILE"]
        then = kinds.get(file["_SCHEMA_ID"])
        if then and file["_LEVEL"]:
            try:
                ends = read_row(file["_MIN_KEY"], then), read_row(file["_MAX_KEY"], then)
            except NoRowError:
                continue  # said of the file
            runs[entry["_PARTITION"], entry["_BUCKET"], file["_LEVEL"]].append((*ends, entry))
    for (_, _, level), run in runs.items():
        run.sort(key=lambda one: [ordered(value) for value in one[0]])
        for (_, before, _), (first, _, entry) in pairwise(run):
            if [*map(ordered, first)] <= [*map(ordered, before)]:
                yield difference(
                    places.claimed(entry), f"keys of level {level}", f"keys after {before}", f"from {first}"
                )


def _key_kinds(schema: Json) -> list[Kind]:
    """Return the types of the key columns as a schema has them."""
    types = {one["name"]: parse_kind(one["type"]) for one in schema["fields"]}
    return [types[name] for name in schema["primaryKeys"] if name not in schema["partitionKeys"]]
