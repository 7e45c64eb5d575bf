"""Implements the port `Lake` on the driver: a warehouse of Paimon tables."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn, TypeVar

from lakeward.errors import (
    CommitConflictError,
    CorruptFileError,
    FencedError,
    LakeAwayError,
    LakeError,
    OutcomeUnknownError,
    RolledBackError,
    StorageError,
    TableGoneError,
)
from lakeward.model.column_ids import check_names_stayed, columns_by_id
from lakeward.model.results import CommitIds, CommitOutcome
from lakeward.model.upkeep import UpkeepOutcome
from lakeward_lake_paimon import files, fitting
from lakeward_lake_paimon.columns import field_names, known_columns
from lakeward_lake_paimon.commit import (
    SnapshotBuilder,
    bucket_counts,
    next_sequence,
    rewrite_change,
    round_change,
    stamp_change,
)
from lakeward_lake_paimon.expire import expire
from lakeward_lake_paimon.file_checks import wrong_in_files
from lakeward_lake_paimon.fitting import missing_fields
from lakeward_lake_paimon.offsets import carries_offsets
from lakeward_lake_paimon.open_catalog import open_catalog
from lakeward_lake_paimon.read_rows import snapshot_rows
from lakeward_lake_paimon.reading_lines import reading_lines
from lakeward_lake_paimon.snapshots import Snapshots, create_snapshot
from lakeward_lake_paimon.table import Table, hold, keep_copy, keep_newest, keep_stamp, read_owner
from lakeward_lake_paimon.table_schema import new_schema
from lakeward_lake_paimon.tables import Warehouse
from lakeward_lake_paimon.task import WriterTask, pack_task
from lakeward_lake_paimon.tidy import stamp_label
from lakeward_lake_paimon.upkeep import check_owner, compaction_change, plan_compaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.results import CommitRequest, LakeHead, RewriteRequest
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.model.upkeep import UpkeepCommit, UpkeepPlan
    from lakeward.ports import CheckResult, Clock, FileDifference, ServerLake
    from lakeward_lake_paimon.commit import Change
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.table import HeldTable, Owner

_TRIES = 50
T = TypeVar("T")


class PaimonLake:
    """See `lakeward.ports.Lake`, `RewritableLake`, `FileCheckedLake`, `UpkeepLake`, `BucketCountsLake` and others."""

    name = "paimon"
    takes_late_rows: Literal[True] = True
    keeps_bucket_counts: Literal[True] = True

    def __init__(self, options: PaimonOptions, clock: Clock) -> None:
        """Open the warehouse.

        Raises:
            ConfigError: an option does not fit.
            LakeError: the catalog does not answer, or refuses.
            StorageError: the warehouse cannot be written.
        """
        self._options = options
        self._clock = clock
        self._warehouse = Warehouse(open_catalog(options), clock.wall_ms)
        self._storage = self._warehouse.storage

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        """See `lakeward.ports.Lake.open_table`."""
        opened = self._warehouse.open(table, incarnation)
        return self._read(table.path, self._head_of, opened) or _gone(table.path)

    def head(self, path: TablePath) -> LakeHead | None:
        """See `lakeward.ports.Lake.head`."""
        return self._read(path, self._head_of)

    def check_schema(self, table: TableSpec) -> None:
        """See `lakeward.ports.SchemaCheckedLake.check_schema`."""
        fitting.check_place(table, placed=self._warehouse.catalog.places)
        schema = new_schema(table, system_columns=table.system_columns is not False, time_ms=0)
        fitting.check_fits(table, schema)

    def check(self, *, write: bool) -> Sequence[CheckResult]:
        """See `lakeward.ports.CheckedLake.check`."""
        return tuple(self._warehouse.catalog.check(write=write))

    def compare(self, server: ServerLake) -> CheckResult:
        """See `lakeward.ports.ComparedLake.compare`."""
        return self._warehouse.catalog.compare(server)

    def read_rows(self, path: TablePath, snapshot_id: int) -> Iterator[pa.RecordBatch]:
        """See `lakeward.ports.ReadableLake.read_rows`."""
        return snapshot_rows(self._storage, self._load(path).location, snapshot_id)

    def reading_lines(self, path: TablePath) -> Mapping[str, str]:
        """See `lakeward.ports.DescribedLake.reading_lines`."""
        return reading_lines(path, self._load(path).location, self._options)

    def check_files(self, path: TablePath, snapshot_id: int, most: int | None) -> Iterator[FileDifference]:
        """See `lakeward.ports.FileCheckedLake.check_files`."""
        return wrong_in_files(self._storage, self._load(path).location, snapshot_id, most)

    def stamp(self, path: TablePath, incarnation: Incarnation) -> LakeHead:
        """See `lakeward.ports.Lake.stamp`."""
        for _ in range(_TRIES):
            with hold(self._storage, self._warehouse.location(path), path) as held:
                table = held.table
                found = table.stamp
                if found == incarnation:
                    keep_stamp(held, incarnation)
                    keep_newest(held)
                    head = self._read(path, self._head_of, table)
                    if head is not None and head.stamp == incarnation:
                        return head
                    continue
                if found is not None and found.succeeds(incarnation):
                    message = f"{path}: a later start of this service, {found}, has taken the table over"
                    raise FencedError(message, by=str(found))
                own = str(uuid.uuid4())
                label = stamp_label(incarnation, own)
                builder = SnapshotBuilder(table, own, self._clock.wall_ms(), label)
                snapshot = builder.build(stamp_change(table, incarnation))
                held.check_place()
                if create_snapshot(held.snapshots, snapshot, label):
                    held.note_head(snapshot.id)
                else:
                    self.delete(files.leftovers(table, label))
        message = f"{path}: {_TRIES} commits of others came before the stamp"
        raise CommitConflictError(message)

    def writer_task(self, table: TableSpec, head: LakeHead, round_id: RoundId) -> bytes:
        """See `lakeward.ports.Lake.writer_task`."""
        found = self._load_own(table.path, table.table_id)
        # Writers match columns by name: values of one that was renamed since `open_table` would be in no file.
        names = columns_by_id(known_columns(found.schema, str(table.path)), field_names(found.schema))
        check_names_stayed(table, head, names)
        fitting.check_fits(table, found.schema)
        if missing := missing_fields(found.schema, table):
            fitting.refuse(table, f"column {missing[0].name!r}", "none: it went away after the round had begun")
        counts = bucket_counts(found) if table.late_rows else {}
        other = {row: one for row, one in counts.items() if one != found.schema.bucket}
        if other:
            fitting.check_bucket_function(table, found.schema)
        task = WriterTask(
            location=found.location,
            token=files.round_token(round_id),
            schema=found.schema.to_bytes(),
            target_size_bytes=self._options.target_file_size_bytes,
            compression=self._options.compression,
            compression_level=self._options.compression_level,
            storage=dict(self._warehouse.catalog.properties),
            base_snapshot=head.snapshot_id or 0,
            next_sequence=next_sequence(found),
            bucket_counts=other,
        )
        return pack_task(task)

    def new_ids(self, path: TablePath) -> CommitIds:
        """See `lakeward.ports.Lake.new_ids`."""
        ids = self._snapshots(path).ids()
        return CommitIds(str(uuid.uuid4()), ids[-1] + 1 if ids else 1)

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """See `lakeward.ports.Lake.commit`."""
        path = request.path
        with hold(self._storage, self._warehouse.location(path), path) as held:
            table = held.table
            _check_fence(table, request)
            if table.next_id != request.ids.snapshot_id:
                return CommitOutcome.CONFLICT
            change = round_change(table, request, next_sequence(table))
            landed = self._create(held, change, request.ids)
        return CommitOutcome.LANDED if landed else CommitOutcome.CONFLICT

    def rewrite(self, request: RewriteRequest) -> CommitOutcome:
        """See `lakeward.ports.RewritableLake`."""
        path, head = request.path, request.base_snapshot
        with hold(self._storage, self._warehouse.location(path), path) as held:
            table = held.table
            check_owner(table, request.table_id, request.incarnation)
            if (table.next_id, request.ids.snapshot_id) != (head + 1, head + 1):
                return CommitOutcome.CONFLICT
            landed = self._create(held, rewrite_change(table, request.files), request.ids)
        return CommitOutcome.LANDED if landed else CommitOutcome.CONFLICT

    def plan_upkeep(self, path: TablePath, upkeep_id: RoundId, most: int) -> UpkeepPlan | None:
        """See `lakeward.ports.UpkeepLake`: of key tables, files are merged."""
        table = self._load_own(path, upkeep_id.table_id)
        if self._options.compaction != "own" or table.stamp != upkeep_id.incarnation:
            return None
        return plan_compaction(table, upkeep_id, most, self._options, self._warehouse.catalog.properties)

    def commit_upkeep(self, commit: UpkeepCommit) -> UpkeepOutcome:
        """See `lakeward.ports.UpkeepLake`."""
        path = commit.path
        with hold(self._storage, self._warehouse.location(path), path) as held:
            table = held.table
            check_owner(table, commit.upkeep_id.table_id, commit.upkeep_id.incarnation)
            if table.next_id != commit.ids.snapshot_id or table.next_id != (commit.base_snapshot or 0) + 1:
                return UpkeepOutcome.CONFLICT
            change = compaction_change(table, commit)
            if change is None:
                return UpkeepOutcome.VOID
            landed = self._create(held, change, commit.ids)
        return UpkeepOutcome.LANDED if landed else UpkeepOutcome.CONFLICT

    def find(self, path: TablePath, round_id: RoundId, step: int) -> int | None:
        """See `lakeward.ports.Lake.find`."""
        table = self._warehouse.load(path)
        return None if table is None else table.find(round_id, step)

    def file_prefix(self, path: TablePath, round_id: RoundId) -> str:
        """See `lakeward.ports.Lake.file_prefix`."""
        location = self._warehouse.location(path)
        _check_own(path, read_owner(self._storage, location), round_id.table_id)
        return files.round_prefix(location, round_id)

    def list_prefix(self, path: TablePath, prefix: str) -> tuple[str, ...]:  # noqa: ARG002 - the prefix is a full path
        """See `lakeward.ports.Lake.list_prefix`."""
        return files.list_prefix(self._storage, prefix)

    def commit_leftovers(self, path: TablePath, ids: CommitIds) -> tuple[str, ...]:
        """See `lakeward.ports.Lake.commit_leftovers`."""
        return files.leftovers(self._load(path), ids.uuid)

    def referenced(self, path: TablePath, files: Collection[str]) -> frozenset[str]:
        """See `lakeward.ports.Lake.referenced`."""
        found = self._read(path, partial(_referenced, named=files))
        return _gone(path) if found is None else found

    def delete(self, files: Collection[str]) -> None:
        """See `lakeward.ports.Lake.delete`."""
        for path in files:
            self._storage.delete(path)

    def expire(self, path: TablePath, keep: frozenset[int]) -> int:
        """See `lakeward.ports.Lake.expire`."""
        with hold(self._storage, self._warehouse.location(path), path) as held:
            return expire(held, keep, self._options.keep_snapshots)

    def close(self) -> None:
        """See `lakeward.ports.Lake.close`; nothing is held."""

    def _create(self, held: HeldTable, change: Change, ids: CommitIds) -> bool:
        """Make a change the head of a table that is held; return False if another snapshot has come first.

        Raises:
            FencedError: another table has taken its path.
            OutcomeUnknownError: it may have landed.
        """
        snapshot = SnapshotBuilder(held.table, ids.uuid, self._clock.wall_ms()).build(change)
        # What was written by the table's path lies in the table now, and the link goes where the table goes.
        held.check_place()
        if not create_snapshot(held.snapshots, snapshot, ids.uuid):
            return False
        held.note_head(snapshot.id)
        if carries_offsets(snapshot):
            with suppress(StorageError):  # the commit has landed, whatever happens now
                keep_copy(held, snapshot)
        try:
            held.check_place()
        except LakeAwayError as away:
            message = f"{held.table.path}: snapshot {snapshot.id} was committed, and the catalog is away: {away}"
            raise OutcomeUnknownError(message) from away
        return True

    def _snapshots(self, path: TablePath) -> Snapshots:
        return Snapshots(self._storage, self._warehouse.location(path))

    def _head_of(self, table: Table) -> LakeHead:
        return replace(table.head(), target_file_bytes=self._options.target_file_size_bytes)

    def _read(self, path: TablePath, read: Callable[[Table], T], first: Table | None = None) -> T | None:
        """Read something of a table, of what was loaded `first` or is there now; None if there is no table.

        What its snapshots name may be deleted while it is read, as they are expired: then it is read anew.

        Raises:
            CorruptFileError: something is missing or damaged, and nothing was expired.
            LakeError: it was expired again and again.
        """
        table = first
        for _ in range(_TRIES):
            table = table or self._warehouse.load(path)
            if table is None:
                return None
            try:
                return read(table)
            except CorruptFileError:
                if self._snapshots(path).has_all(table.snapshots.ids):
                    raise
                table = None
        message = f"{path}: snapshots were expired while they were read, {_TRIES} times in a row"
        raise LakeError(message)

    def _load(self, path: TablePath) -> Table:
        return self._warehouse.load(path) or _gone(path)

    def _load_own(self, path: TablePath, table_id: int) -> Table:
        """Load the lake table of a table id; after a pause, the name may belong to a later table's lake table.

        That may not have been opened yet.
        """
        table = self._load(path)
        _check_own(path, table.owner, table_id)
        return table


def _check_own(path: TablePath, owner: Owner | None, table_id: int) -> None:
    found = None if owner is None else owner.table_id
    if found != table_id:
        message = f"{path}: the lake table belongs to table id {found}, expected {table_id}"
        raise TableGoneError(message)


def _gone(path: TablePath) -> NoReturn:
    message = f"{path}: the lake has no such table"
    raise TableGoneError(message)


def _referenced(table: Table, named: Collection[str]) -> frozenset[str]:
    return files.referenced(table, named)


def _check_fence(table: Table, request: CommitRequest) -> None:
    """Check on the head that the commit is built on: whose table, whose stamp, which newest commit.

    Raises:
        FencedError: one of them is another one now.
    """
    owner = None if table.owner is None else table.owner.table_id
    if owner != request.table_id:
        message = f"{request.path}: the lake table belongs to table id {owner}, expected {request.table_id}"
        raise FencedError(message)
    stamp = table.stamp
    if stamp != request.incarnation:
        message = f"{request.path}: the stamp on the head is {stamp}, expected {request.incarnation}"
        raise FencedError(message, by="" if stamp is None else str(stamp))
    try:
        commit = table.newest_commit()
    except RolledBackError as rolled_back:
        raise FencedError(str(rolled_back)) from rolled_back
    newest = None if commit is None else commit.id
    if newest != request.base_commit:
        message = (
            f"{request.path}: the newest commit with offsets is snapshot {newest}, expected {request.base_commit}, "
            "from which the round was enumerated"
        )
        raise FencedError(message)
