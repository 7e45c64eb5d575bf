"""What the files of a table say, read plainly: what is written once never changes, so each is read once."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq

from lakeward.model.lake_offsets import OFFSETS_FILE
from lakeward_lake_paimon.avro_file import read_avro
from lakeward_paimon_kit.source_tables import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DELETES = frozenset({1, 3})


class Found(NamedTuple):
    """A row of a file; of a file of a log table `sequence` is the file's first one, and then the row's place in it."""

    row: Row
    sequence: tuple[int, int]
    kind: int
    offset: int | None
    """The source's offset, where the table has such a column."""
    bucket: int | None


class Entry(NamedTuple):
    """What a manifest says of a file."""

    kind: int
    partition: bytes
    bucket: int
    name: str
    level: int
    rows: int
    least: int
    greatest: int
    size: int


@dataclass(frozen=True)
class Snapshot:
    """A snapshot, and what it names."""

    said: dict[str, Any]
    metadata: frozenset[str]
    """Names of lists and manifests, of the changelog too."""
    live: tuple[Entry, ...]
    changelog: tuple[Entry, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of all files that it needs."""
        offsets = self.properties.get(OFFSETS_FILE)
        own = set() if offsets is None else {offsets}
        return self.metadata | {one.name for one in (*self.live, *self.changelog)} | own

    @property
    def properties(self) -> dict[str, str]:
        """What it says besides."""
        return self.said.get("properties") or {}


class Listing:
    """The files of one table at one moment, by their names: but for hints and schemas, no name is used twice."""

    def __init__(self, folder: Path) -> None:
        """List them."""
        self.folder = folder
        self.paths: dict[str, str] = {}
        self.snapshots: list[int] = []
        self.tags: list[str] = []
        prefix = len(str(folder)) + 1
        for place, _, names in os.walk(folder):
            inside = str(place)[prefix:]
            for name in names:
                self.paths[name] = f"{inside}/{name}" if inside else name
            if inside == "snapshot":
                self.snapshots = sorted(int(name[9:]) for name in names if name.startswith("snapshot-"))
            elif inside == "tag":
                self.tags = sorted(names)

    def hint(self, name: str) -> int | None:
        """Return what a hint says, None if there is none."""
        path = self.folder / "snapshot" / name
        return int(path.read_text(encoding="utf-8")) if path.is_file() else None


class Shelf:
    """Files that were read before."""

    def __init__(self) -> None:
        """Know nothing."""
        self._records: dict[str, list[Any]] = {}
        self._rows: dict[str, list[Found]] = {}

    def snapshot(self, listing: Listing, data: bytes) -> Snapshot:
        """Read what a snapshot names; all of it must be there."""
        said = json.loads(data)
        lists = [said[name] for name in ("baseManifestList", "deltaManifestList")]
        changes = said.get("changelogManifestList")
        named = [self._manifests(listing, name) for name in lists]
        own = [] if changes is None else self._manifests(listing, changes)
        manifests = [name for one in named for name in one]
        return Snapshot(
            said=said,
            metadata=frozenset((*lists, *manifests, *own, *(() if changes is None else (changes,)))),
            live=tuple(_live(entry for name in manifests for entry in self._entries(listing, name))),
            changelog=tuple(entry for name in own for entry in self._entries(listing, name)),
        )

    def rows(self, listing: Listing, entry: Entry) -> list[Found]:
        """Return the rows of a file."""
        if entry.name not in self._rows:
            path = listing.folder / listing.paths[entry.name]
            self._rows[entry.name] = list(_rows(pq.ParquetFile(path).read(), entry))
        return self._rows[entry.name]

    def _manifests(self, listing: Listing, name: str) -> list[str]:
        return [one["_FILE_NAME"] for one in self._read(listing, name)]

    def _entries(self, listing: Listing, name: str) -> list[Entry]:
        return [_entry(one) for one in self._read(listing, name)]

    def _read(self, listing: Listing, name: str) -> list[Any]:
        if name not in self._records:
            path = listing.folder / "manifest" / name
            assert path.is_file(), f"{name} is gone"
            self._records[name] = list(read_avro(path.read_bytes()))
        return self._records[name]


def _entry(record: dict[str, Any]) -> Entry:
    file = record["_FILE"]
    return Entry(
        record["_KIND"],
        record["_PARTITION"],
        record["_BUCKET"],
        file["_FILE_NAME"],
        file["_LEVEL"],
        file["_ROW_COUNT"],
        file["_MIN_SEQUENCE_NUMBER"],
        file["_MAX_SEQUENCE_NUMBER"],
        file["_FILE_SIZE"],
    )


def _live(entries: Iterable[Entry]) -> Sequence[Entry]:
    """Return what is added and not taken away, in whichever order that is said."""
    found: dict[tuple[str, int], list[Entry]] = {}
    counts: dict[tuple[str, int], int] = {}
    for one in entries:
        key = one.name, one.level
        found.setdefault(key, []).append(one)
        counts[key] = counts.get(key, 0) + (1 if one.kind == 0 else -1)
    for (name, _), count in counts.items():
        assert count in {0, 1}, f"{name} is {count} times in a snapshot"
    return [next(one for one in found[key] if one.kind == 0) for key, count in counts.items() if count]


def _rows(table: Any, entry: Entry) -> Iterable[Found]:  # noqa: ANN401 - a pa.Table
    assert table.num_rows == entry.rows, f"{entry.name} has {table.num_rows} rows, its manifest says {entry.rows}"
    names = table.column_names
    columns = {name: table.column(name).to_pylist() for name in names}
    for place in range(table.num_rows):
        row = Row(columns["id"][place], columns["region"][place], columns["name"][place])
        sequence = (columns["_SEQUENCE_NUMBER"][place], 0) if "_SEQUENCE_NUMBER" in columns else (entry.least, place)
        if "_KEY_id" in columns:
            assert columns["_KEY_id"][place] == row.id, f"{entry.name}: key {columns['_KEY_id'][place]} of row {row}"
        kind = columns["_VALUE_KIND"][place] if "_VALUE_KIND" in columns else 0
        offset, bucket = (columns[name][place] if name in columns else None for name in ("__offset", "__bucket"))
        yield Found(row, sequence, kind, offset, bucket)


def newest_rows(rows: Iterable[Found], key_of: Any) -> list[Row]:  # noqa: ANN401 - a function
    """Return of each key the row with the greatest sequence number, without deletes."""
    newest: dict[Any, Found] = {}
    for one in rows:
        key = key_of(one.row)
        known = newest.get(key)
        assert known is None or known.sequence != one.sequence, f"two rows of key {key} have sequence {one.sequence}"
        if known is None or one.sequence > known.sequence:
            newest[key] = one
    return [one.row for one in newest.values() if one.kind not in _DELETES]
