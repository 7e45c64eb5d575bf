"""Records this service's last commit to each lake table: `<root>/<service>/committed/<table id>`.

The lake's head is the truth about offsets. But a lake table that was deleted has no head, and an empty table in its
place looks like one that was never tiered. The record tells the two cases apart, in every mode. It is written after
each commit; if a crash prevented that, the table's next round writes it from the lake's head.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import CorruptFileError
from lakeward.model.tables import TableBucket, TablePath, in_order
from lakeward.storage.records import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Source
    from lakeward.storage.small_files import SmallFiles

_VERSION = 1
_FOLDER = "committed"


class CommitRecord(msgspec.Struct, frozen=True):
    """The newest commit with offsets of a table that this service made or continued from.

    `snapshot_id` is None if a person accepted that the lake has no commit; `disregarded` is then the snapshot that the
    source still has on record. `stored` are the offsets as `stored_offsets` makes them. `committed_ms`: ms since 1970.
    """

    path: TablePath
    table_id: int
    snapshot_id: int | None
    stored: tuple[tuple[int | None, int, int], ...] = msgspec.field(name="offsets")
    committed_ms: int
    disregarded: int | None = None
    accepted: bool = False
    """True if a person accepted that `offsets` count for that snapshot, whatever it or an earlier one contains."""

    @property
    def offsets(self) -> dict[TableBucket, int]:
        """The next offset to tier, by bucket."""
        return {TableBucket(self.table_id, partition, bucket): offset for partition, bucket, offset in self.stored}


def stored_offsets(offsets: Mapping[TableBucket, int]) -> tuple[tuple[int | None, int, int], ...]:
    """Return partition id, bucket and offset of each bucket of one table, in order."""
    return tuple((bucket.partition_id, bucket.bucket, offset) for bucket, offset in in_order(offsets))


_RECORDS = msgspec.msgpack.Decoder(CommitRecord)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


class CommitRecords:
    """The records of one service. Blocking; thread-safe, one call per table at a time."""

    def __init__(self, files: SmallFiles, service: str) -> None:
        self._files = files
        self._service = service

    def read(self, table_id: int) -> CommitRecord | None:
        """Return a table's record, None if nothing was ever committed to its lake table.

        Raises:
            CorruptFileError: it is damaged; names the file.
            StorageError: it cannot be read.
        """
        name = self._name(table_id)
        data = self._files.read(name)
        return None if data is None else decode(data, self._files.path(name))

    def list(self) -> tuple[CommitRecord, ...]:
        """Return all records of the service. Raises as `read`."""
        names = [entry.name for entry in self._files.entries(f"{self._service}/{_FOLDER}")]
        found = [(name, self._files.read(name)) for name in names if name.rpartition("/")[2].isdigit()]
        return tuple(decode(data, self._files.path(name)) for name, data in found if data is not None)

    def write(self, record: CommitRecord) -> None:
        """Write a record durably, replacing the table's older one.

        Raises:
            StorageError: the disk or store refused.
        """
        self._files.write(self._name(record.table_id), encode(record))

    def delete(self, table_id: int) -> None:
        """Delete the record of a table that the source has dropped; one that is not there is no error."""
        self._files.delete(self._name(table_id))

    def _name(self, table_id: int) -> str:
        return f"{self._service}/{_FOLDER}/{table_id}"


def lost_commits(source: Source, table: TableSpec, record: CommitRecord | None, head: LakeHead | None) -> str:
    """Return what is wrong if a lake table with commits is gone, or was replaced by an empty one.

    It is what is missing and what to do, empty if nothing is wrong. `record` is this service's, None if nothing was
    ever committed; that of the source is used if this service has none, or if another service tiered the table. `head`
    is the lake's before anything is created, None if the lake has no table of that name.

    Raises:
        SourceError: the source's record cannot be read.
    """
    if head is not None and head.commit is not None and head.table_id in {None, table.table_id}:
        return ""
    if record is not None and record.snapshot_id is not None:
        date = datetime.fromtimestamp(record.committed_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
        held = f"this service committed lake snapshot {record.snapshot_id} at {date}"
    else:
        # A record in the source of a mirrored table would be another service's.
        at_source = source.lake_record(table) if table.union_read else None
        if at_source is None or (record is not None and record.disregarded == at_source.snapshot_id):
            return ""
        held = f"the source has lake snapshot {at_source.snapshot_id} on record"
    return (
        f"table {table.path}: {held}, and now {_found(head, table)}. Bring the table or its warehouse back, and it "
        f"goes on by itself; to tier it anew from the source's earliest record: lakeward tables accept {table.path}"
    )


def _found(head: LakeHead | None, table: TableSpec) -> str:
    if head is None:
        return f"the lake has no table {_named(table)}"
    if head.table_id not in {None, table.table_id}:
        return f"the lake's table {_named(table)} belongs to table id {head.table_id}, expected {table.table_id}"
    return f"the lake's table {_named(table)} has no commit"


def _named(table: TableSpec) -> str:
    if table.lake_path is None:
        return "of that name"
    return f"{table.lake_path}, as lake_name and lake_namespace call it"


def encode(record: CommitRecord) -> bytes:
    """Encode a record."""
    return pack(_VERSION, (msgspec.msgpack.encode(record),))


def decode(data: bytes, file: str) -> CommitRecord:
    """Decode a record.

    Raises:
        CorruptFileError: damaged, or of an unknown version; names the file.
    """
    _, (data,) = unpack(data, file, {_VERSION: 1})
    try:
        return _RECORDS.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptFileError(file, "a record of a table's newest commit", str(error)) from error
