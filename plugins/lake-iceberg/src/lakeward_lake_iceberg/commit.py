"""Builds one snapshot on one state of the metadata: its manifests, its list, its summary, and the updates to send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import ManifestContent, write_manifest_list
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from lakeward.errors import FencedError, LakeError
from lakeward.local_files import storage_errors
from lakeward.model.lake_offsets import (
    COMPLETE_MS,
    INLINE_BYTES,
    OFFSETS,
    OFFSETS_FILE,
    complete_property,
    pack_offsets,
)
from lakeward_lake_iceberg.detail import unpack_detail
from lakeward_lake_iceberg.entries import VECTORS_FROM, delete_file, live_entries, manifests_in
from lakeward_lake_iceberg.lineage import LineageListWriter, next_row_id
from lakeward_lake_iceberg.manifests import ManifestSet, data_file
from lakeward_lake_iceberg.moved_deletes import MovedDeletes, live_paths, merged_deletes, moved_deletes, write_moved
from lakeward_lake_iceberg.moves import MOVES_FILE, pack_moves
from lakeward_lake_iceberg.offsets import (
    COPIED_INCARNATION,
    COPIED_ROUND,
    COPIED_SEQUENCE,
    COPIED_SNAPSHOT,
    COPIED_SOURCE,
    COPIED_STEP,
    COPIED_TIMESTAMP,
    INCARNATION,
    ROUND,
    STEP,
    TABLE_ID,
    source_properties,
)
from lakeward_lake_iceberg.settled_deletes import SettledDeletes, settle_deletes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.update import TableRequirement, TableUpdate

    from lakeward.model.results import CommitIds, CommitRequest, LakeFile
    from lakeward_lake_iceberg.detail import FileDetail
    from lakeward_lake_iceberg.storage import Storage
    from lakeward_lake_iceberg.upkeep import Replacement

FORMAT_VERSIONS = (2, 3)
"""Those with deletes: 2 has position deletes, 3 has deletion vectors and row ids."""

_SOMETIMES_COPIED = (OFFSETS, OFFSETS_FILE, COMPLETE_MS, COPIED_SOURCE)
"""Table properties that not every commit has: those of the one before go."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit that is written but not sent."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


class SnapshotBuilder:
    """Writes one snapshot on a table as it was loaded, under ids that were chosen before."""

    def __init__(self, table: Table, ids: CommitIds, wall_ms: int) -> None:
        """Prepare the builder; nothing is written yet.

        `table` is the state that the snapshot is built on; `wall_ms` is the time of the commit, in ms since 1970.
        """
        self._table = table
        self._metadata = table.metadata
        self._ids = ids
        # A reader may refuse a snapshot that is older than the table's last change.
        self._time_ms = max(wall_ms, self._metadata.last_updated_ms)
        self._manifests = ManifestSet(self._metadata, table.io, ids.snapshot_id, self._new_manifest)
        self._written: list[str] = []

    def stamp(self, summary: Mapping[str, str]) -> Prepared:
        """Build a snapshot with a stamp; it also lists the order of files that have none, if the table does not yet.

        Iceberg's procedures for Spark rewrite data files in no order, and refuse a table that does not list it.
        """
        prepared = self.empty(summary)
        if UNSORTED_SORT_ORDER in self._metadata.sort_orders:
            return prepared
        unsorted = AddSortOrderUpdate.model_validate({"sort-order": UNSORTED_SORT_ORDER})
        return Prepared(prepared.requirements, (*prepared.updates, unsorted))

    def empty(self, summary: Mapping[str, str]) -> Prepared:
        """Build a snapshot of what is there."""
        return self._finish(self._base(), Operation.APPEND, {}, summary, {})

    def commit(self, request: CommitRequest, storage: Storage) -> Prepared:
        """Build the commit of a round.

        Raises:
            FencedError: a file that the round's deletes reference or replace is gone, and was not merged by Lakeward.
            StorageError: the storage refused; nothing was sent.
        """
        details = [unpack_detail(file.detail) for file in request.files]
        gone = gone_targets(self._table, request, details)
        moved = moved_deletes(self._table, request, gone, storage) if gone else MovedDeletes()
        if self._metadata.format_version >= VECTORS_FROM:
            settled = settle_deletes(self._table, request, gone, moved, storage)
        else:
            settled = _position_deletes(request, gone, write_moved(self._table, storage, self._ids, moved))
        offsets = self._offsets(request)
        with storage_errors(self._metadata.location):
            return self._build(request, settled, offsets)

    def replace(self, change: Replacement, summary: Mapping[str, str]) -> Prepared:
        """Build a snapshot of the same rows in other files.

        Raises:
            StorageError: the storage refused; nothing was sent.
        """
        path = self._metadata_path(f"moves-{self._ids.uuid}.msgpack")
        with storage_errors(path), self._table.io.new_output(path).create(overwrite=True) as stream:
            stream.write(pack_moves(tuple(change.merges)))
        with storage_errors(self._metadata.location):
            data, deletes = self._split(change.files)
            base, removed = self._manifests.without(self._base(), change.removed, data=True)
            manifests = [
                *self._manifests.added(data, ManifestContent.DATA, change.sequences),
                *self._manifests.added(deletes, ManifestContent.DELETES),
                *self._manifests.merged(base),
            ]
            self._drop_all_but(manifests)
            counts = self._counts([*data, *deletes], removed)
            return self._finish(manifests, Operation.REPLACE, counts, {**summary, MOVES_FILE: path}, {})

    def rewrite(self, files: Collection[LakeFile]) -> Prepared:
        """Build a snapshot of the rows of these files alone.

        Raises:
            StorageError: the storage refused; nothing was sent.
        """
        with storage_errors(self._metadata.location):
            data, _ = self._split(files)
            manifests = self._base()
            content = ManifestContent.DATA, ManifestContent.DELETES
            removed = [one.data_file for kind in content for one in live_entries(manifests, self._table.io, kind)]
            added = self._manifests.added(data, ManifestContent.DATA)
            return self._finish(added, Operation.OVERWRITE, self._counts(data, removed), {}, {})

    def _split(self, files: Collection[LakeFile]) -> tuple[list[DataFile], list[DataFile]]:
        """Return data files and delete files in Iceberg's terms."""
        schema = self._metadata.schema()
        types = {spec_id: spec.partition_type(schema) for spec_id, spec in self._metadata.specs().items()}
        data = [data_file(file, types) for file in files if file.kind == "data"]
        return data, [data_file(file, types) for file in files if file.kind == "deletes"]

    def _build(self, request: CommitRequest, settled: SettledDeletes, offsets: dict[str, str]) -> Prepared:
        data, _ = self._split(request.files)
        _, deletes = self._split(settled.added)
        _, superseded = self._split(settled.superseded)
        base, removed = self._manifests.without(self._base(), settled.removed)
        missing = settled.required - {delete_file(file) for file in removed}
        # Those that upkeep has merged meanwhile are still in force, and the round's own contain them too.
        if missing and missing - merged_deletes(self._table, request):
            message = f"{request.path}: delete files that the round replaces are gone; enumerate the round afresh"
            raise FencedError(message)
        manifests = [
            *self._manifests.added(data, ManifestContent.DATA),
            *self._manifests.added(deletes, ManifestContent.DELETES, superseded=superseded),
            *self._manifests.merged(base),
        ]
        self._drop_all_but(manifests)
        operation = Operation.OVERWRITE if deletes else Operation.APPEND
        summary = {
            **source_properties(request.source_path),
            INCARNATION: str(request.incarnation),
            TABLE_ID: str(request.table_id),
            ROUND: request.round_id.name,
            STEP: str(request.step),
            **complete_property(request.complete_ms),
            **offsets,
        }
        counts = self._counts([*data, *deletes, *superseded], [*removed, *superseded])
        return self._finish(manifests, operation, counts, summary, self._copy(request, offsets))

    def _base(self) -> list[ManifestFile]:
        return manifests_in(self._metadata.current_snapshot(), self._table.io)

    def _offsets(self, request: CommitRequest) -> dict[str, str]:
        text = pack_offsets(request.table_id, request.offsets)
        if len(text) <= INLINE_BYTES:
            return {OFFSETS: text}
        path = self._metadata_path(f"offsets-{self._ids.uuid}.json")
        with storage_errors(path), self._table.io.new_output(path).create(overwrite=True) as stream:
            stream.write(text.encode("utf-8"))
        return {OFFSETS_FILE: path}

    def _copy(self, request: CommitRequest, offsets: Mapping[str, str]) -> dict[str, str]:
        copied = {
            **offsets,
            **complete_property(request.complete_ms),
            COPIED_SNAPSHOT: str(self._ids.snapshot_id),
            COPIED_SEQUENCE: str(self._metadata.next_sequence_number()),
            COPIED_TIMESTAMP: str(self._time_ms),
            COPIED_INCARNATION: str(request.incarnation),
            COPIED_ROUND: request.round_id.name,
            COPIED_STEP: str(request.step),
        }
        if request.source_path is not None:
            copied[COPIED_SOURCE] = request.source_path
        return copied

    def _counts(self, added: Collection[DataFile], removed: Collection[DataFile]) -> dict[str, str]:
        collector = _Collector()
        specs, schema = self._metadata.specs(), self._metadata.schema()
        for file in added:
            collector.add_file(file, schema, specs[file.spec_id])
        for file in removed:
            collector.remove_file(file, schema, specs[file.spec_id])
        return collector.build()

    def _finish(
        self,
        manifests: list[ManifestFile],
        operation: Operation,
        counts: Mapping[str, str],
        summary: Mapping[str, str],
        properties: Mapping[str, str],
    ) -> Prepared:
        head = self._metadata.current_snapshot()
        parent = None if head is None else head.snapshot_id
        # The totals of the parent's summary are carried on.
        # The sums are the same for each operation, and pyiceberg refuses to add them up for some.
        told = Summary(Operation.OVERWRITE, **{**counts, **summary})
        summed = update_snapshot_summaries(told, None if head is None else head.summary)
        full = Summary(operation, **summed.additional_properties)
        path, row_ids = self._write_list(manifests, parent)
        snapshot = Snapshot.model_validate(
            {
                **row_ids,
                "snapshot-id": self._ids.snapshot_id,
                "parent-snapshot-id": parent,
                "sequence-number": self._metadata.next_sequence_number(),
                "timestamp-ms": self._time_ms,
                "manifest-list": path,
                "summary": full,
                "schema-id": self._metadata.current_schema_id,
            }
        )
        return Prepared(_requirements(self._table), self._updates(snapshot, properties))

    def _write_list(self, manifests: list[ManifestFile], parent: int | None) -> tuple[str, dict[str, int]]:
        """Write the list; return its path, and what the snapshot says of row ids (nothing before version 3)."""
        path = self._metadata_path(f"snap-{self._ids.snapshot_id}-0-{self._ids.uuid}.avro")
        codec: Any = self._metadata.properties.get("write.avro.compression-codec", "gzip")
        output, sequence = self._table.io.new_output(path), self._metadata.next_sequence_number()
        first = next_row_id(self._metadata)
        version = self._metadata.format_version
        with storage_errors(path):
            if first is None:
                with write_manifest_list(version, output, self._ids.snapshot_id, parent, sequence, codec) as writer:
                    writer.add_manifests(manifests)
                return path, {}
            with LineageListWriter(output, self._ids.snapshot_id, parent, sequence, codec, first) as lineage:
                lineage.add_manifests(manifests)
        return path, {"first-row-id": first, "added-rows": lineage.next_row_id - first}

    def _updates(self, snapshot: Snapshot, properties: Mapping[str, str]) -> tuple[TableUpdate, ...]:
        reference = SetSnapshotRefUpdate.model_validate(
            {
                "ref-name": MAIN_BRANCH,
                "type": SnapshotRefType.BRANCH,
                "snapshot-id": snapshot.snapshot_id,
                **_retention(self._table),
            }
        )
        updates: list[TableUpdate] = [AddSnapshotUpdate(snapshot=snapshot), reference]
        if properties:
            known = self._metadata.properties
            stale = [key for key in _SOMETIMES_COPIED if key in known and key not in properties]
            if stale:
                updates.append(RemovePropertiesUpdate(removals=stale))
            updates.append(SetPropertiesUpdate(updates=dict(properties)))
        return tuple(updates)

    def _new_manifest(self) -> str:
        path = self._metadata_path(f"{self._ids.uuid}-m{len(self._written)}.avro")
        self._written.append(path)
        return path

    def _drop_all_but(self, manifests: Collection[ManifestFile]) -> None:
        """Delete manifests that were written without what the round replaces, and then merged into others."""
        named = {manifest.manifest_path for manifest in manifests}
        for path in self._written:
            if path not in named:
                with storage_errors(path):
                    self._table.io.delete(path)

    def _metadata_path(self, name: str) -> str:
        return self._table.location_provider().new_metadata_location(name)


class _Collector(SnapshotSummaryCollector):
    """pyiceberg's, with partitions counted by their values: its texts of dates know no year before 1."""

    def update_partition_metrics(
        self,
        partition_spec: PartitionSpec,
        file: DataFile,
        is_add_file: bool,
        schema: Schema,  # noqa: ARG002 - pyiceberg's signature
    ) -> None:
        metrics = self.partition_metrics[repr((partition_spec.spec_id, file.partition))]
        if is_add_file:
            metrics.add_file(file)
        else:
            metrics.remove_file(file)


def _position_deletes(request: CommitRequest, gone: frozenset[str], moved: Collection[LakeFile]) -> SettledDeletes:
    """Return all position deletes of a round as added, and what they replace.

    Deletes of files that are gone name nothing. They stay until the next compaction: a checkpoint may name them.
    """
    deletes = [file for file in request.files if file.kind == "deletes"]
    details = [detail for file in deletes if (detail := unpack_detail(file.detail)).references not in gone]
    replaced = {path for detail in details for path in detail.replaces}
    # Writers of several partitions may delete from one file of an older spec, and each replaces the same delete
    # files. Where an earlier step of the round has done so, nothing is lost: each new file has their positions.
    shared = {path for detail in details if detail.writer is not None for path in detail.replaces}
    return SettledDeletes([*deletes, *moved], removed=replaced, required=replaced - shared)


def gone_targets(table: Table, request: CommitRequest, details: Collection[FileDetail]) -> frozenset[str]:
    """Return the data files that deletes of the round reference and that are no longer in the table.

    Manifests are read only if data files were removed since the snapshot that the round is pinned to.
    """
    own = {file.path for file in request.files}
    named = {detail.references for detail in details if detail.references is not None} - own
    pins = {detail.base_snapshot for detail in details if detail.references is not None}
    if not named or all(_only_grew(table, pin) for pin in pins):
        return frozenset()
    return frozenset(named) - live_paths(table)


def _only_grew(table: Table, pin: int | None) -> bool:
    """Return whether no snapshot after the pinned one removed data files, according to their summaries."""
    current = table.metadata.current_snapshot()
    while current is not None and current.snapshot_id != pin:
        summary = current.summary
        appended = summary is not None and (
            summary.operation is Operation.APPEND or INCARNATION in summary.additional_properties
        )
        if not appended or current.parent_snapshot_id is None:
            return False
        current = table.metadata.snapshot_by_id(current.parent_snapshot_id)
    return current is not None


def _requirements(table: Table) -> tuple[TableRequirement, ...]:
    head = table.metadata.refs.get(MAIN_BRANCH)
    return (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        main_is(None if head is None else head.snapshot_id),
    )


def main_is(snapshot_id: int | None) -> TableRequirement:
    """Require that main stands at a snapshot, or does not exist."""
    return ref_is(MAIN_BRANCH, snapshot_id)


def ref_is(name: str, snapshot_id: int | None) -> TableRequirement:
    """Require the same of any branch or tag."""
    return AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": snapshot_id})


def _retention(table: Table) -> dict[str, int]:
    """Keep the branch's configured retention."""
    reference = table.metadata.refs.get(MAIN_BRANCH)
    if reference is None:
        return {}
    kept = {
        "min-snapshots-to-keep": reference.min_snapshots_to_keep,
        "max-snapshot-age-ms": reference.max_snapshot_age_ms,
        "max-ref-age-ms": reference.max_ref_age_ms,
    }
    return {key: value for key, value in kept.items() if value is not None}


def check_format(table: Table) -> None:
    """Refuse a table whose format version cannot be written here.

    Raises:
        LakeError: the version is neither 2 nor 3.
    """
    if table.metadata.format_version not in FORMAT_VERSIONS:
        found, expected = table.metadata.format_version, " or ".join(map(str, FORMAT_VERSIONS))
        message = f"{'.'.join(table.name())}: format version: expected {expected}, found {found}"
        raise LakeError(message)
