"""Reads the state of main: the stamp, the newest commit with offsets, and whether it was rolled back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakeward.errors import CorruptFileError, RolledBackError
from lakeward.model.column_ids import columns_by_id
from lakeward.model.results import LakeHead
from lakeward_lake_iceberg.columns import field_names, known_columns
from lakeward_lake_iceberg.offsets import (
    COPIED_SEQUENCE,
    COPIED_SNAPSHOT,
    INCARNATION,
    TABLE_ID,
    carries_offsets,
    copied_commit,
    offset_commit,
    parse_incarnation,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lakeward.model.identity import Incarnation
    from lakeward.model.results import OffsetCommit
    from lakeward.model.tables import TablePath


@dataclass(frozen=True, slots=True)
class Ancestry:
    """Main's retained snapshots from the head down. `truncated` says that older ones were expired below."""

    snapshots: tuple[Snapshot, ...]
    truncated: bool

    @classmethod
    def of(cls, metadata: TableMetadata) -> Ancestry:
        """Follow the parents. The first snapshot has sequence number 1, so a chain that ends elsewhere is truncated."""
        known = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        chain: list[Snapshot] = []
        current = known.get(metadata.current_snapshot_id or 0)
        while current is not None:
            chain.append(current)
            current = known.get(current.parent_snapshot_id or 0)
        return cls(tuple(chain), truncated=bool(chain) and (chain[-1].sequence_number or 0) > 1)

    @property
    def ids(self) -> frozenset[int]:
        """The snapshot ids."""
        return frozenset(snapshot.snapshot_id for snapshot in self.snapshots)


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Return a snapshot's summary without its operation."""
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def read_head(path: TablePath, table: Table, target_file_bytes: int | None = None) -> LakeHead:
    """Return the state of a loaded table's main branch. `target_file_bytes` as in `LakeHead`.

    Raises:
        RolledBackError: the copied offsets are of a snapshot that main no longer descends from.
        CorruptFileError: offsets or an incarnation are damaged.
    """
    metadata = table.metadata
    ancestry = Ancestry.of(metadata)
    table_id = metadata.properties.get(TABLE_ID)
    behind = _check_copy(path, metadata, ancestry)
    commit = newest_commit(ancestry, table.io)
    if commit is None and behind:
        commit = copied_commit(metadata.properties, partial(read_bytes, table.io))
    return LakeHead(
        path=path,
        table_id=None if table_id is None else int(table_id),
        location=metadata.location,
        snapshot_id=metadata.current_snapshot_id,
        stamp=newest_stamp(ancestry),
        commit=commit,
        own=commit if commit is None or commit.incarnation is not None else _own_commit(metadata, ancestry, table.io),
        files=_count_files(ancestry),
        columns=tuple(field.name for field in table.schema().fields),
        by_id=columns_by_id(known_columns(table), field_names(table)),
        target_file_bytes=target_file_bytes,
        row_bytes=_row_bytes(ancestry),
    )


def _count_files(ancestry: Ancestry) -> int | None:
    """Return how many data and delete files the table has; None where the summary of its head does not say."""
    if not ancestry.snapshots:
        return 0
    summary = summary_of(ancestry.snapshots[0])
    data, deletes = summary.get("total-data-files"), summary.get("total-delete-files", "0")
    return int(data) + int(deletes) if data is not None else None


def _row_bytes(ancestry: Ancestry) -> float | None:
    """Return the bytes of all files for each row; None where there is none, or the summary does not say."""
    summary = summary_of(ancestry.snapshots[0]) if ancestry.snapshots else {}
    rows, size = (int(summary.get(name, 0)) for name in ("total-records", "total-files-size"))
    return size / rows if rows and size else None


def newest_stamp(ancestry: Ancestry) -> Incarnation | None:
    """Return the incarnation of the newest snapshot that carries one."""
    stamped = _carrying(ancestry, INCARNATION)
    return next((parse_incarnation(summary_of(one)[INCARNATION]) for one in stamped), None)


def newest_commit(ancestry: Ancestry, io: FileIO) -> OffsetCommit | None:
    """Return the newest commit that carries offsets."""
    for snapshot in ancestry.snapshots:
        summary = summary_of(snapshot)
        if carries_offsets(summary):
            return offset_commit(snapshot, summary, partial(read_bytes, io))
    return None


def _own_commit(metadata: TableMetadata, ancestry: Ancestry, io: FileIO) -> OffsetCommit | None:
    """Return this service's newest commit with offsets, below another service's; from the properties if expired."""
    for snapshot in ancestry.snapshots:
        summary = summary_of(snapshot)
        if INCARNATION in summary and carries_offsets(summary):
            return offset_commit(snapshot, summary, partial(read_bytes, io))
    return (
        copied_commit(metadata.properties, partial(read_bytes, io)) if COPIED_SNAPSHOT in metadata.properties else None
    )


def newest_commit_id(ancestry: Ancestry) -> int | None:
    """Return the id of the newest commit that carries offsets, without reading them."""
    return next((one.snapshot_id for one in ancestry.snapshots if carries_offsets(summary_of(one))), None)


def read_bytes(io: FileIO, path: str) -> bytes:
    """Return a file's bytes.

    Raises:
        CorruptFileError: it does not exist.
    """
    try:
        with io.new_input(path).open() as stream:
            return bytes(stream.read())
    except FileNotFoundError as missing:
        raise CorruptFileError(path, "an offsets file", "nothing") from missing


def _carrying(ancestry: Ancestry, key: str) -> Iterator[Snapshot]:
    return (snapshot for snapshot in ancestry.snapshots if key in summary_of(snapshot))


def _check_copy(path: TablePath, metadata: TableMetadata, ancestry: Ancestry) -> bool:
    """Return whether the snapshot of the copied offsets is below the retained chain (expired by another program).

    A missing snapshot means a rollback only if it cannot have been expired: the retained chain reaches older snapshots,
    or the first one, without containing it.
    """
    copied = metadata.properties.get(COPIED_SNAPSHOT)
    if copied is None or int(copied) in ancestry.ids:
        return False
    sequence = int(metadata.properties.get(COPIED_SEQUENCE, "0"))
    oldest = ancestry.snapshots[-1].sequence_number or 0 if ancestry.snapshots else 0
    if ancestry.truncated and oldest > sequence:
        return True
    message = (
        f"{path}: the lake table was rolled back: property {COPIED_SNAPSHOT} names snapshot {copied}, which is not "
        f"in the ancestry of main (head {metadata.current_snapshot_id}). Roll forward again, or, to tier anew from "
        f"the offsets of the head, remove that property"
    )
    raise RolledBackError(message)
