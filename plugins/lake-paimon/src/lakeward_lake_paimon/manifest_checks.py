"""Compares what a snapshot and its lists say of manifests with the manifests themselves, for `lakeward verify`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.errors import short_repr
from lakeward.ports import FileDifference
from lakeward_lake_paimon.kinds import parse_kind
from lakeward_lake_paimon.snapshot_files import DELETED
from lakeward_lake_paimon.stored_values import NoRowError, ordered, read_row, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward_lake_paimon.kinds import Kind
    from lakeward_lake_paimon.snapshot_files import Json, StoredTable


@dataclass(frozen=True, slots=True)
class CheckedList:
    """The entries of all manifests that a list names, and what is said wrongly of them."""

    entries: list[Json]
    differences: list[FileDifference]

    @property
    def rows(self) -> int:
        """The rows of the files that are added, without those that are taken away."""
        return sum(_sign(entry) * entry["_FILE"]["_ROW_COUNT"] for entry in self.entries)


def difference(file: str, what: str, expected: object, found: object) -> FileDifference:
    """Return a difference with its values as they are shown."""
    texts = [one if isinstance(one, str) else short_repr(shown(one)) for one in (expected, found)]
    return FileDifference(file, what, *texts)


def check_list(stored: StoredTable, snapshot: Json, name: str) -> CheckedList:
    """Read a list of a snapshot, such as `deltaManifestList`, and compare it with what it names."""
    listed = snapshot.get(name)
    if not listed:
        return CheckedList([], [])
    path = stored.manifest_path(listed)
    wrong = list(_size(path, len(stored.read(path)), snapshot.get(f"{name}Size")))
    entries: list[Json] = []
    schema = stored.schema(stored.schema_ids()[-1])
    kinds = _partition_kinds(schema)
    for said in stored.records(listed):
        found = stored.records(said["_FILE_NAME"])
        wrong += _manifest(stored, said, found, list(kinds.values()), list(kinds))
        entries += found
    return CheckedList(entries, wrong)


def check_counts(stored: StoredTable, snapshot: Json, counts: dict[str, int]) -> Iterator[FileDifference]:
    """Compare the numbers of rows that a snapshot's file says with those of its entries; what is not said is right."""
    for name, expected in counts.items():
        said = snapshot.get(name)
        if said is not None and said != expected:
            yield difference(stored.snapshot_path(snapshot["id"]), name, expected, said)


def _partition_kinds(schema: Json) -> dict[str, Kind]:
    kinds = {one["name"]: parse_kind(one["type"]) for one in schema["fields"]}
    return {name: kinds[name] for name in schema["partitionKeys"]}


def _size(path: str, expected: int, said: int | None) -> Iterator[FileDifference]:
    if said is not None and said != expected:
        yield difference(path, "size", expected, said)


def _sign(entry: Json) -> int:
    return -1 if entry["_KIND"] == DELETED else 1


def _manifest(
    stored: StoredTable, said: Json, entries: Sequence[Json], kinds: Sequence[Kind], names: Sequence[str]
) -> Iterator[FileDifference]:
    """Compare what a list says of one manifest."""
    path = stored.manifest_path(said["_FILE_NAME"])
    deleted = sum(entry["_KIND"] == DELETED for entry in entries)
    yield from _size(path, len(stored.read(path)), said["_FILE_SIZE"])
    for what, expected, name in (
        ("number of added files", len(entries) - deleted, "_NUM_ADDED_FILES"),
        ("number of deleted files", deleted, "_NUM_DELETED_FILES"),
    ):
        if said[name] != expected:
            yield difference(path, what, expected, said[name])
    if not entries:
        return
    numbers = {"bucket": [one["_BUCKET"] for one in entries], "level": [one["_FILE"]["_LEVEL"] for one in entries]}
    for what, values in numbers.items():
        least, greatest = said.get(f"_MIN_{what.upper()}"), said.get(f"_MAX_{what.upper()}")
        yield from bounds(path, what, (min(values), max(values)), (least, greatest))
    yield from _partitions(path, said["_PARTITION_STATS"], entries, kinds, names)


def bounds(
    path: str,
    what: str,
    has: tuple[Any, Any] | None,
    said: tuple[Any, Any],
    order: Any = ordered,  # noqa: ANN401 - a function
) -> Iterator[FileDifference]:
    """Compare the bounds of some values; what is not said leaves nothing out."""
    if has is None:
        return
    least, greatest = said
    if least is not None and order(least) > order(has[0]):
        yield difference(path, f"lower bound of {what}", has[0], least)
    if greatest is not None and order(greatest) < order(has[1]):
        yield difference(path, f"upper bound of {what}", has[1], greatest)


def _partitions(
    path: str, stats: Json, entries: Sequence[Json], kinds: Sequence[Kind], names: Sequence[str]
) -> Iterator[FileDifference]:
    try:
        rows = [read_row(entry["_PARTITION"], kinds) for entry in entries]
        least, greatest = (read_row(stats[one], kinds) for one in ("_MIN_VALUES", "_MAX_VALUES"))
    except NoRowError as wrong:
        yield difference(path, "partitions", f"rows of {len(kinds)} columns", str(wrong))
        return
    nulls = stats["_NULL_COUNTS"] or [None] * len(kinds)
    for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        values = [row[place] for row in rows if row[place] is not None]
        has = (min(values, key=ordered), max(values, key=ordered)) if values and not kind.is_bytes else None
        yield from bounds(path, f"partition key {name}", has, (least[place], greatest[place]))
        missing = len(rows) - len(values)
        if nulls[place] is not None and nulls[place] != missing:
            yield difference(path, f"null count of partition key {name}", missing, nulls[place])
