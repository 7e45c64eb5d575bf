"""Another engine at a table, as a Flink or Spark job of Paimon: it appends, compacts, expires and tags.

It knows neither stamps nor offsets, and takes files that others have planned to merge. It works while no call of ours
is under way, so that its rename replaces nothing.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward_lake_paimon.binary_row import encode_row
from lakeward_lake_paimon.kinds import Kind
from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_lake_paimon.manifests import ADD, FROM_COMPACTION, Entry, Manifests
from lakeward_lake_paimon.merging import newest
from lakeward_lake_paimon.stats import Stats
from lakeward_lake_paimon.table_schema import newest_schema
from lakeward_paimon_kit.files_read import Listing, Shelf
from lakeward_paimon_kit.others import Other
from lakeward_paimon_kit.source_tables import Row

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

_GONE = pa.array([1, 3], pa.int8())


class Engine:
    """Works on the table in a folder, which has a snapshot."""

    def __init__(self, source: random.Random, folder: Path, publish: Callable[[dict[str, Any]], None] | None) -> None:
        """Read the head; see `Other` for `publish`."""
        self._source = source
        self._folder = folder
        schema = newest_schema(LocalStorage(), str(folder))
        assert schema is not None
        self._is_key = bool(schema.primary_keys)
        self._top = int(schema.options.get("num-sorted-run.compaction-trigger", 5))
        kinds = [one.kind for one in schema.named(schema.partition_keys)]
        self._key_kinds = [one.kind for one in schema.named(schema.key_columns)]
        self._other = Other(folder, kinds, publish)
        self._manifests = Manifests(LocalStorage(), str(folder))
        self._listing = Listing(folder)
        self.head = self._listing.snapshots[-1]
        said = json.loads((folder / "snapshot" / f"snapshot-{self.head}").read_bytes())
        lists = [
            one for name in ("baseManifestList", "deltaManifestList") for one in self._manifests.read_list(said[name])
        ]
        found: dict[tuple[str, int], Entry] = {}
        gone: list[tuple[str, int]] = []
        for entry in self._manifests.entries(lists):
            if entry.kind == ADD:
                found[entry.file.name, entry.file.level] = entry
            else:
                gone.append((entry.file.name, entry.file.level))
        for key in gone:
            found.pop(key, None)
        self._live = list(found.values())

    def append(self, number: int) -> list[Row]:
        """Commit a row of its own beside others; return it, or nothing where the table has no file yet."""
        files = [one for one in self._live if one.file.rows]
        if not files:
            self._other.commit("APPEND")
            return []
        like = self._source.choice(files)
        table = self._read(like).slice(0, 1)
        row = Row(-number, table.column("region")[0].as_py(), f"f{number}")
        after = 1 + max(
            one.file.max_sequence for one in self._live if (one.partition, one.bucket) == (like.partition, like.bucket)
        )
        values = {"id": row.id, "name": row.name, "_KEY_id": row.id, "_SEQUENCE_NUMBER": after, "_VALUE_KIND": 0}
        for name, value in values.items():
            if name in table.column_names:
                place = table.column_names.index(name)
                field = table.schema.field(name)
                table = table.set_column(place, field, pa.array([value], field.type))
        entry = self._written(like, table, (after, after), 0)
        self._other.commit("APPEND", [entry])
        return [row]

    def compact(self) -> frozenset[str]:
        """Merge files of one bucket; return the names of those that went."""
        places = sorted({(one.partition, one.bucket) for one in self._live})
        if not places:
            return frozenset()
        place = self._source.choice(places)
        files = sorted((one for one in self._live if (one.partition, one.bucket) == place), key=_age)
        if not self._is_key:
            first = self._source.randrange(len(files))
            files = files[first : first + self._source.randrange(2, 5)]
            level, drops = 0, True
        else:
            files, level, drops = self._chosen(files)
        if len(files) < 2:
            return frozenset()
        rows = pa.concat_tables([self._read(one) for one in files])
        if self._is_key:
            rows = newest(rows, [name for name in rows.column_names if name.startswith("_KEY_")])
            if drops:
                rows = rows.filter(pc.invert(pc.is_in(rows.column("_VALUE_KIND"), value_set=_GONE)))
        numbers = min(one.file.min_sequence for one in files), max(one.file.max_sequence for one in files)
        added = [self._written(files[0], rows, numbers, level)] if rows.num_rows else []
        self._other.commit("COMPACT", [*(one.taken_away() for one in files), *added])
        return frozenset(one.file.name for one in files)

    def expire(self, count: int) -> set[str]:
        """Expire all but the newest snapshots, with the files that nothing else needs; return what is left of ours."""
        folder, shelf = self._folder, Shelf()
        gone, kept = self._listing.snapshots[:-count], self._listing.snapshots[-count:]
        data = {number: (folder / "snapshot" / f"snapshot-{number}").read_bytes() for number in [*gone, *kept]}
        needed = {name for number in kept for name in shelf.snapshot(self._listing, data[number]).names}
        for tag in self._listing.tags:
            needed |= shelf.snapshot(self._listing, (folder / "tag" / tag).read_bytes()).names
        dead = {name for number in gone for name in shelf.snapshot(self._listing, data[number]).names} - needed
        paths = {self._listing.paths[name] for name in dead}
        left = {path for path in paths if path.startswith("_lakeward/")}
        for path in paths - left:
            (folder / path).unlink()
        for number in gone:
            (folder / "snapshot" / f"snapshot-{number}").unlink()
        (folder / "snapshot" / "EARLIEST").write_text(str(kept[0]), encoding="utf-8")
        return left

    def tag(self, name: str) -> None:
        """Tag the head."""
        (self._folder / "tag").mkdir(exist_ok=True)
        data = (self._folder / "snapshot" / f"snapshot-{self.head}").read_bytes()
        (self._folder / "tag" / f"tag-{name}").write_bytes(data)

    def _chosen(self, files: list[Entry]) -> tuple[list[Entry], int, bool]:
        """Return files of a key table to merge, the level that the merged one gets, and whether deletes go."""
        levels = [one.file.level for one in files if one.file.level]
        least = min(levels, default=0)
        if least > 1 and self._source.random() < 0.5:
            return [one for one in files if not one.file.level], least - 1, False
        return files, self._top, True

    def _read(self, entry: Entry) -> pa.Table:
        return pq.ParquetFile(self._path(entry.file.name)).read()

    def _path(self, name: str) -> Path:
        return self._folder / self._listing.paths[name]

    def _written(self, like: Entry, rows: pa.Table, numbers: tuple[int, int], level: int) -> Entry:
        """Write rows beside a file."""
        name = f"data-{uuid.uuid4()}-0.parquet"
        path = self._path(like.file.name).with_name(name)
        pq.write_table(rows, path)
        known: dict[str, Any] = {}
        if self._is_key:
            keys = rows.column("_KEY_id").to_pylist()
            least, greatest = (encode_row([end], [Kind("BIGINT")]) for end in (min(keys), max(keys)))
            known = {"min_key": least, "max_key": greatest, "key_stats": Stats(least, greatest, (0,))}
            known["deleted_rows"] = int(pc.sum(pc.is_in(rows.column("_VALUE_KIND"), value_set=_GONE)).as_py() or 0)
        file = replace(
            like.file,
            name=name,
            size_bytes=path.stat().st_size,
            rows=rows.num_rows,
            min_sequence=numbers[0],
            max_sequence=numbers[1],
            level=level,
            source=FROM_COMPACTION,
            value_stats=Stats(),
            value_stats_columns=(),
            **known,
        )
        return Entry(ADD, like.partition, like.bucket, like.total_buckets, file)


def _age(entry: Entry) -> tuple[int, int]:
    return -entry.file.level, entry.file.min_sequence
