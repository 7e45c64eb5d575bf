"""Builds one snapshot on a table as it was read: its manifests, its lists, and what it says in its properties."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakeward.errors import FencedError, SchemaMismatchError
from lakeward.model.lake_offsets import INLINE_BYTES, OFFSETS, OFFSETS_FILE, complete_property, pack_offsets
from lakeward_lake_paimon.binary_row import decode_row
from lakeward_lake_paimon.detail import CHANGELOG, unpack_detail
from lakeward_lake_paimon.manifests import ADD, DELETE, FROM_APPEND, DataFile, Entry, merge
from lakeward_lake_paimon.offsets import (
    FLUSS_OFFSETS,
    FLUSS_USER,
    INCARNATION,
    NEXT_SEQUENCE,
    OWN_USER,
    ROUND,
    STEP,
    TABLE_ID,
    incarnation_of,
)
from lakeward_lake_paimon.partitions import partition_folder
from lakeward_lake_paimon.snapshots import VERSION, Snapshot
from lakeward_lake_paimon.stats import Stats
from lakeward_lake_paimon.table import OWN_FOLDER
from lakeward_lake_paimon.table_schema import read_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward.model.results import CommitRequest, LakeFile
    from lakeward_lake_paimon.detail import FileDetail
    from lakeward_lake_paimon.manifests import Manifest
    from lakeward_lake_paimon.table import Table

IDENTIFIER = 2**63 - 1
"""The commit identifier of a commit that belongs to no checkpoint of Flink (`BatchWriteBuilder.COMMIT_IDENTIFIER`)."""
APPEND, COMPACT, OVERWRITE = "APPEND", "COMPACT", "OVERWRITE"
_MERGE_FROM = 30
"""Small manifests of a base list become one when there are more (Paimon's `manifest.merge-min-count`)."""
_SMALL = 8 << 20
"""A manifest of more bytes is not merged (`manifest.target-file-size`)."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a snapshot changes. `changelog` are files for streaming readers."""

    kind: str
    user: str
    properties: Mapping[str, str]
    entries: Sequence[Entry] = ()
    changelog: Sequence[Entry] = field(default=())


class SnapshotBuilder:
    """Writes one snapshot on a table as it was read, with a uuid that was chosen before."""

    def __init__(self, table: Table, uuid: str, wall_ms: int, label: str = "") -> None:
        """Prepare the builder; nothing is written yet.

        `wall_ms` is the time of the commit, in ms since 1970. `label` is what the names of its files have in common;
        empty: the uuid.
        """
        self._table = table
        self._uuid = uuid
        self._label = label or uuid
        self._base = table.latest
        # Readers look for a snapshot by its time, and expect it to be none before the one below.
        self._time_ms = max(wall_ms, 0 if self._base is None else self._base.time_millis)
        self._manifests = table.manifests
        schema = table.schema
        self._kinds = [one.kind for one in schema.named(schema.partition_keys)]
        self._count = 0

    def build(self, change: Change) -> Snapshot:
        """Write the manifests of a snapshot, and return it; it is not the head yet.

        Raises:
            StorageError: the storage refused.
        """
        base = self._base
        manifests = () if base is None else self._manifests.manifests_of(base)
        base_list, base_bytes = self._write_list(self._merged(manifests))
        delta_list, delta_bytes = self._write_list(self._written(change.entries))
        changes, change_bytes = self._write_list(self._written(change.changelog)) if change.changelog else (None, None)
        delta = sum(entry.file.rows * (1 if entry.kind == ADD else -1) for entry in change.entries)
        total = 0 if base is None else base.total_record_count or 0
        return Snapshot(
            version=VERSION,
            uuid=self._uuid,
            id=self._table.next_id,
            schema_id=self._table.schema.id,
            base_manifest_list=base_list,
            base_manifest_list_size=base_bytes,
            delta_manifest_list=delta_list,
            delta_manifest_list_size=delta_bytes,
            changelog_manifest_list=changes,
            changelog_manifest_list_size=change_bytes,
            index_manifest=None if base is None else base.index_manifest,
            commit_user=change.user,
            commit_identifier=IDENTIFIER,
            commit_kind=change.kind,
            time_millis=self._time_ms,
            total_record_count=total + delta,
            delta_record_count=delta,
            changelog_record_count=sum(entry.file.rows for entry in change.changelog),
            watermark=None if base is None else base.watermark,
            statistics=None if base is None else base.statistics,
            next_row_id=None if base is None else base.next_row_id,
            properties=dict(change.properties),
        )

    def _written(self, entries: Sequence[Entry]) -> list[Manifest]:
        return [self._write(entries)] if entries else []

    def _write(self, entries: Sequence[Entry]) -> Manifest:
        self._count += 1
        name = f"manifest-{self._label}-{self._count}"
        return self._manifests.write(name, entries, self._table.schema.id, self._kinds)

    def _write_list(self, manifests: Sequence[Manifest]) -> tuple[str, int]:
        self._count += 1
        name = f"manifest-list-{self._label}-{self._count}"
        return name, self._manifests.write_list(name, manifests)

    def _merged(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        """Return the base's manifests, the small ones as one if they are many."""
        small = [one for one in manifests if one.size_bytes < _SMALL]
        if len(small) <= _MERGE_FROM:
            return list(manifests)
        large = [one for one in manifests if one.size_bytes >= _SMALL]
        entries = list(self._manifests.entries(small))
        added = merge(entries)
        # What takes away a file of a large manifest has to stay.
        there = {entry.key for entry in entries if entry.kind == ADD}
        gone = [entry for entry in entries if entry.kind == DELETE and entry.key not in there]
        left = [*gone, *added.values()]
        return [*large, *self._written(left)]


def stamp_change(table: Table, incarnation: object) -> Change:
    """Return an empty change that carries a stamp."""
    properties = {INCARNATION: str(incarnation)}
    if table.owner is not None:
        properties[TABLE_ID] = str(table.owner.table_id)
    return Change(APPEND, OWN_USER, properties)


def round_change(table: Table, request: CommitRequest, next_sequence: int) -> Change:
    """Return the change of a round's commit; offsets that are too long are written to a file.

    `next_sequence` is the number after all sequence numbers of the table's files.

    Raises:
        FencedError: rows of somebody else have come between, whose order with ours is not known.
        SchemaMismatchError: a partition has another count of buckets in the source than its files here.
    """
    details = [(file, unpack_detail(file.detail)) for file in request.files]
    if table.schema.primary_keys:
        _check_sequences(table, request, [detail for _, detail in details])
        numbers = {id(detail): (detail.min_sequence, detail.max_sequence) for _, detail in details}
    else:
        numbers = _numbered(details, next_sequence)
    _check_totals(table, request, [detail for _, detail in details])
    entries = {
        kind: [
            _entry(file, detail, detail.total_buckets, *numbers[id(detail)])
            for file, detail in details
            if (file.kind == CHANGELOG) == kind
        ]
        for kind in (False, True)
    }
    after = max([next_sequence, *(last + 1 for _, last in numbers.values())])
    user, properties = _properties(table, request, after)
    return Change(APPEND, user, properties, entries[False], entries[True])


def rewrite_change(table: Table, files: Iterable[LakeFile]) -> Change:
    """Return the change that replaces all files of a log table. It carries the stamp that is there again."""
    details = [(file, unpack_detail(file.detail)) for file in files]
    numbers = _numbered(details, next_sequence(table))
    added = [_entry(file, detail, detail.total_buckets, *numbers[id(detail)]) for file, detail in details]
    gone = [entry.taken_away() for entry in table.manifests.live(table.latest).values()]
    stamp = {} if table.stamp is None else stamp_change(table, table.stamp).properties
    return Change(OVERWRITE, OWN_USER, stamp, [*gone, *added])


def _check_totals(table: Table, request: CommitRequest, details: Iterable[FileDetail]) -> None:
    """Refuse rows that are divided by another count than those of their partition: readers would miss some."""
    totals = bucket_counts(table)
    for detail in details:
        there = totals.get(detail.partition, detail.total_buckets)
        if detail.total_buckets != there:
            kinds = [one.kind for one in table.schema.named(table.schema.partition_keys)]
            name = partition_folder(table.schema, decode_row(detail.partition, kinds)).rstrip("/")
            message = (
                f"table {request.path}, partition {name}: expected {there} buckets, as its files have, found "
                f"{detail.total_buckets}: the source has made it anew. Drop the partition from the lake table, then "
                "`lakeward tables resume`"
            )
            raise SchemaMismatchError(message)


def bucket_counts(table: Table) -> dict[bytes, int]:
    """Return the bucket count of each partition, where the table's was changed: a partition keeps the one it has."""
    schema = table.schema
    earlier = (read_schema(table.storage, table.location, number) for number in range(schema.id))
    if not schema.partition_keys or all(one.bucket == schema.bucket for one in earlier):
        return {}
    live = table.manifests.live(table.latest)
    return {entry.partition: entry.total_buckets for entry in live.values()}


def _properties(table: Table, request: CommitRequest, next_sequence: int) -> tuple[str, dict[str, str]]:
    properties = {
        INCARNATION: str(request.incarnation),
        TABLE_ID: str(request.table_id),
        ROUND: request.round_id.name,
        STEP: str(request.step),
        NEXT_SEQUENCE: str(next_sequence),
        **complete_property(request.complete_ms),
    }
    text = pack_offsets(request.table_id, request.offsets)
    if len(text) <= INLINE_BYTES:
        properties[OFFSETS] = text
    else:
        name = f"offsets-{request.ids.uuid}"
        table.storage.write(f"{table.location}/{OWN_FOLDER}/{name}", text.encode())
        properties[OFFSETS_FILE] = name
    if request.source_path is None:
        return OWN_USER, properties
    return FLUSS_USER, properties | {FLUSS_OFFSETS: request.source_path}


def _numbered(details: Sequence[tuple[LakeFile, FileDetail]], first: int) -> dict[int, tuple[int, int]]:
    """Give the rows of a log table sequence numbers: readers take the files of a bucket in this order."""
    numbers: dict[int, tuple[int, int]] = {}
    following: dict[tuple[bytes, int], int] = defaultdict(lambda: first)
    for file, detail in sorted(details, key=lambda pair: (pair[1].first_offset, pair[0].path)):
        start = following[detail.partition, detail.bucket]
        following[detail.partition, detail.bucket] = start + file.rows
        numbers[id(detail)] = (start, start + file.rows - 1)
    return numbers


def _entry(file: LakeFile, detail: FileDetail, total_buckets: int, first: int, last: int) -> Entry:
    known: dict[str, Any] = {}
    if detail.min_key:
        fields = int.from_bytes(detail.min_key[:4], "big")
        stats = Stats(detail.least_key, detail.greatest_key, (0,) * fields)
        known = {"min_key": detail.min_key, "max_key": detail.max_key, "key_stats": stats}
    if detail.least_values:
        known["value_stats"] = Stats(detail.least_values, detail.greatest_values, detail.nulls)
        known["value_stats_columns"] = detail.stats_columns
    described = DataFile(
        name=file.path.rpartition("/")[2],
        size_bytes=file.size_bytes,
        rows=file.rows,
        schema_id=detail.schema_id,
        min_sequence=first,
        max_sequence=last,
        created_ms=detail.created_ms,
        deleted_rows=detail.deleted_rows,
        source=FROM_APPEND,
        **known,
    )
    return Entry(ADD, detail.partition, detail.bucket, total_buckets, described)


def _check_sequences(table: Table, request: CommitRequest, details: Sequence[FileDetail]) -> None:
    """Refuse if another program has added rows to a bucket of the round since the round began.

    A row replaces an older one of its key by its sequence number. Those of the round continue what was there when it
    began, so it cannot be told which of the two rows is the newer one.

    Raises:
        FencedError: one has.
    """
    least: dict[tuple[bytes, int], int] = {}
    for detail in details:
        place = (detail.partition, detail.bucket)
        least[place] = min(detail.min_sequence, least.get(place, detail.min_sequence))
    if not least:
        return
    base = min(detail.base_snapshot for detail in details)
    for snapshot in table.snapshots.above(base):
        if incarnation_of(snapshot) is not None:
            continue
        for entry in table.manifests.entries(table.manifests.read_list(snapshot.delta_manifest_list)):
            first = least.get((entry.partition, entry.bucket))
            if entry.kind == ADD and first is not None and entry.file.max_sequence >= first:
                message = (
                    f"{request.path}: snapshot {snapshot.id} of user {snapshot.commit_user!r} added rows to bucket "
                    f"{entry.bucket} while the round ran; enumerate the round afresh"
                )
                raise FencedError(message)


def next_sequence(table: Table) -> int:
    """Return the number after all sequence numbers of the table's files.

    The newest commit of ours says it; only what others have added since is read, or everything if there is none.
    """
    manifests = table.manifests
    highest = -1
    oldest: Snapshot | None = None
    for snapshot in table.snapshots:
        if NEXT_SEQUENCE in snapshot.said:
            return max(highest + 1, int(snapshot.said[NEXT_SEQUENCE]))
        highest = max(highest, _highest(manifests.entries(manifests.read_list(snapshot.delta_manifest_list))))
        oldest = snapshot
    if oldest is not None:
        highest = max(highest, _highest(manifests.entries(manifests.read_list(oldest.base_manifest_list))))
    return highest + 1


def _highest(entries: Iterable[Entry]) -> int:
    return max((entry.file.max_sequence for entry in entries if entry.kind == ADD), default=-1)
