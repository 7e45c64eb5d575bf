"""Says which files of a key table's buckets are to be merged, as Paimon's universal compaction.

A bucket's files are sorted runs: each file of level 0, and the files of each other level together. Rows of a lower
level are newer. All of level 0 is merged, and then level by level what is not much larger than what is merged already:
so a large run is rewritten only after a large part of it has been written anew. Without an older run, deletes go.

Rounds add files of level 0 meanwhile, which are newer than all that is merged: so a merge fits on any later head, as
long as its files are still there, and nobody else has put a run in its place.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward_lake_paimon.datafile import PARQUET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward_lake_paimon.manifests import Entry
    from lakeward_lake_paimon.table_schema import TableSchema

TRIGGER = 5
"""Sorted runs of a bucket from which on it is compacted (`num-sorted-run.compaction-trigger`)."""
MOST_RUNS = 30
"""Runs of level 0 that are merged at once: a batch of rows of each is held in memory. The oldest are taken."""
MOST_BYTES = 1 << 30
"""Beyond so many bytes no further level is taken, if that can be: a job that has to give way has done nothing."""
_RATIO = 2
"""A level is taken that is at most so many times as large as what is taken already."""
_ONLY = {"write-only": "false", "merge-engine": "deduplicate", "deletion-vectors.enabled": "false"}
"""Tables with another value of these options are left to the engine that they were made for."""
_NONE_OF = ("sequence.field", "rowkind.field")
_BY_COMPACTION = frozenset({"lookup", "full-compaction"})
"""Producers of changelogs that are a part of Paimon's own compaction."""
Bucket = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one bucket that are to be merged, the newest run first, and the level of what comes out."""

    runs: tuple[tuple[Entry, ...], ...]
    level: int
    drops_deletes: bool

    @property
    def entries(self) -> list[Entry]:
        """All the files."""
        return [entry for run in self.runs for entry in run]

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(entry.file.size_bytes for entry in self.entries)


def due_merges(schema: TableSchema, live: Iterable[Entry]) -> list[Merge]:
    """Return what is to be merged of a table's live files, the bucket with most runs first."""
    options = schema.options
    if not schema.primary_keys or _is_left_alone(options):
        return []
    # A single run is merged already, whatever the table says.
    trigger = max(2, int(options.get("num-sorted-run.compaction-trigger", TRIGGER)))
    top = max(1, int(options.get("num-levels", trigger + 1)) - 1)
    buckets: dict[Bucket, list[Entry]] = defaultdict(list)
    for entry in live:
        buckets[entry.partition, entry.bucket].append(entry)
    runs = [_runs(entries) for entries in buckets.values() if all(_is_readable(one) for one in entries)]
    due = sorted((one for one in runs if len(one) >= trigger), key=len, reverse=True)
    return [_merge(one, trigger, top) for one in due]


def still_fits(level: int, others: Iterable[Entry], *, drops_deletes: bool) -> bool:
    """Return whether merged rows can come to a level of a bucket beside its other files, which are not merged.

    All at level 0 are newer. A run that somebody else has put at that level or above, or below it where deletes are
    left out, is in the way.
    """
    return all(not other.file.level or (other.file.level > level and not drops_deletes) for other in others)


def _is_left_alone(options: Mapping[str, str]) -> bool:
    others = any(options.get(name, value).lower() != value for name, value in _ONLY.items())
    return others or options.get("changelog-producer") in _BY_COMPACTION or any(name in options for name in _NONE_OF)


def _is_readable(entry: Entry) -> bool:
    return entry.file.name.endswith(PARQUET)


def _runs(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """Return a bucket's sorted runs, the newest first."""
    fresh = [entry for entry in entries if not entry.file.level]
    runs = [(entry,) for entry in sorted(fresh, key=lambda one: one.file.max_sequence, reverse=True)]
    levels: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.file.level:
            levels[entry.file.level].append(entry)
    return runs + [tuple(levels[level]) for level in sorted(levels)]


def _merge(runs: Sequence[tuple[Entry, ...]], trigger: int, top: int) -> Merge:
    fresh = sum(not run[0].file.level for run in runs)
    runs = runs[max(0, fresh - MOST_RUNS) :]
    # As many as leave less than the trigger: otherwise the same would be due again, for ever where levels are full.
    least = len(runs) - trigger + 2
    taken, size = 0, 0
    for run in runs:
        level, bytes_of = run[0].file.level, sum(entry.file.size_bytes for entry in run)
        is_large = bytes_of > _RATIO * size or size + bytes_of > MOST_BYTES
        # What comes out needs a level between 0 and the next older run's.
        if taken >= least and level > 1 and is_large:
            break
        taken, size = taken + 1, size + bytes_of
    older = runs[taken:]
    level = older[0][0].file.level - 1 if older else top
    return Merge(tuple(runs[:taken]), level, drops_deletes=not older)
