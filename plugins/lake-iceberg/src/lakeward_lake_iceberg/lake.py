"""Implements the port `Lake` on the driver: a warehouse of Iceberg tables."""

from __future__ import annotations

import secrets
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.errors import (
    CommitConflictError,
    FencedError,
    LakeError,
    OutcomeUnknownError,
    RolledBackError,
    StorageError,
    TableGoneError,
)
from lakeward.model.column_ids import check_names_stayed, columns_by_id
from lakeward.model.results import CommitIds, CommitOutcome
from lakeward.model.upkeep import UpkeepOutcome
from lakeward_lake_iceberg import expire, files, pins, tables
from lakeward_lake_iceberg.catalog import CatalogClient, Fate, Sent
from lakeward_lake_iceberg.check import check_lake, compare_catalogs
from lakeward_lake_iceberg.columns import check_columns, field_names, known_columns
from lakeward_lake_iceberg.commit import FORMAT_VERSIONS, Prepared, SnapshotBuilder, check_format
from lakeward_lake_iceberg.compaction import Live, count_files
from lakeward_lake_iceberg.compression import check_level
from lakeward_lake_iceberg.expiry_plan import Expiry, ExpiryPlans
from lakeward_lake_iceberg.file_checks import wrong_in_files
from lakeward_lake_iceberg.head import Ancestry, newest_commit_id, newest_stamp, read_head, summary_of
from lakeward_lake_iceberg.offsets import (
    COPIED_INCARNATION,
    COPIED_ROUND,
    COPIED_SNAPSHOT,
    COPIED_STEP,
    INCARNATION,
    ROUND,
    STEP,
    TABLE_ID,
    UPKEEP,
)
from lakeward_lake_iceberg.orphans import find_orphans
from lakeward_lake_iceberg.pins import target_size
from lakeward_lake_iceberg.read_rows import snapshot_rows
from lakeward_lake_iceberg.reading_lines import reading_lines
from lakeward_lake_iceberg.retention import Kept, Retention
from lakeward_lake_iceberg.schema import has_system_columns, lake_schema
from lakeward_lake_iceberg.storage import Storage
from lakeward_lake_iceberg.task import pack_task
from lakeward_lake_iceberg.upgrade import Upgrading
from lakeward_lake_iceberg.upkeep import Planner, Replacing, check_owner

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.table import Table

    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.results import CommitRequest, LakeHead, RewriteRequest
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.model.upkeep import FileCounts, OrphanFile, UpkeepCommit, UpkeepPlan
    from lakeward.ports import CheckResult, Clock, FileDifference, FormatUpgrade, ServerLake
    from lakeward_lake_iceberg.options import IcebergOptions

_TRIES = 50
_ID_BITS = 62


class IcebergLake:
    """See `lakeward.ports.Lake`.

    It is also a `RewritableLake`, `FileCheckedLake`, `UpkeepLake`, `CountedLake`, `OrphanLake` and `UpgradableLake`.
    """

    name = "iceberg"

    def __init__(self, options: IcebergOptions, clock: Clock) -> None:
        """Open the catalog.

        Raises:
            ConfigError: an option does not fit.
            StorageError: the warehouse cannot be written.
        """
        check_level(options)
        self._options = options
        self._clock = clock
        self._client = CatalogClient(options)
        self._counted: tuple[str, Live] | None = None
        """The files that were counted last, by metadata file: what is planned next is mostly the same table."""

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        """See `lakeward.ports.Lake.open_table`."""
        return self._head_of(table.path, tables.open_table(self._client, table, incarnation))

    def head(self, path: TablePath) -> LakeHead | None:
        """See `lakeward.ports.Lake.head`."""
        table = self._client.load(path)
        return None if table is None else self._head_of(path, table)

    def check(self, *, write: bool) -> Sequence[CheckResult]:
        """See `lakeward.ports.CheckedLake.check`."""
        return tuple(check_lake(self._client, self._options, self._storage_at, self._clock, write=write))

    def check_schema(self, table: TableSpec) -> None:
        """See `lakeward.ports.SchemaCheckedLake.check_schema`."""
        lake_schema(table, system_columns=table.system_columns is not False)

    def compare(self, server: ServerLake) -> CheckResult:
        """See `lakeward.ports.ComparedLake.compare`."""
        return compare_catalogs(self._client, self._options, server)

    def read_rows(self, path: TablePath, snapshot_id: int) -> Iterator[pa.RecordBatch]:
        """See `lakeward.ports.ReadableLake.read_rows`."""
        return snapshot_rows(self._load(path), snapshot_id)

    def reading_lines(self, path: TablePath) -> Mapping[str, str]:
        """See `lakeward.ports.DescribedLake.reading_lines`."""
        return reading_lines(path, self._load(path))

    def check_files(self, path: TablePath, snapshot_id: int, most: int | None) -> Iterator[FileDifference]:
        """See `lakeward.ports.FileCheckedLake.check_files`."""
        return wrong_in_files(self._load(path), snapshot_id, most)

    def stamp(self, path: TablePath, incarnation: Incarnation) -> LakeHead:
        """See `lakeward.ports.Lake.stamp`."""
        for tried in range(_TRIES):
            table = self._load(path)
            found = newest_stamp(Ancestry.of(table.metadata))
            if found == incarnation:
                if tried:
                    self._clean_up_start(table, incarnation)
                return self._head_of(path, table)
            if found is not None and found.succeeds(incarnation):
                message = f"{path}: a later start of this service, {found}, has taken the table over"
                raise FencedError(message, by=str(found))
            self._send_stamp(path, table, incarnation)
        message = f"{path}: {_TRIES} commits of others came before the stamp"
        raise CommitConflictError(message)

    def writer_task(self, table: TableSpec, head: LakeHead, round_id: RoundId) -> bytes:
        """See `lakeward.ports.Lake.writer_task`."""
        loaded = self._load_own(table.path, table.table_id)
        # Writers match columns by name: values of one that was renamed since `open_table` would be in no file.
        check_names_stayed(table, head, columns_by_id(known_columns(loaded), field_names(loaded)))
        wanted = lake_schema(table, system_columns=has_system_columns(loaded))
        check_columns(loaded, table, wanted, may_add=False)
        prefix = _round_prefix(loaded, round_id)
        storage = self._storage_properties()
        return pack_task(pins.build_task(loaded, table, head, prefix=prefix, options=self._options, storage=storage))

    def new_ids(self, path: TablePath) -> CommitIds:  # noqa: ARG002 - ids of all tables are chosen by chance
        """See `lakeward.ports.Lake.new_ids`."""
        return CommitIds(str(uuid.uuid4()), secrets.randbits(_ID_BITS) + 1)

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """See `lakeward.ports.Lake.commit`.

        `FencedError` with an empty `by` also says that files which the round's deletes name are gone (somebody else
        compacted the table): the round must be enumerated again.
        """
        table = self._load(request.path)
        check_format(table)
        _check_fence(table, request)
        builder = SnapshotBuilder(table, request.ids, self._clock.wall_ms())
        prepared = builder.commit(request, self._storage(table))
        return self._send(request.path, table, prepared, request.ids)

    def rewrite(self, request: RewriteRequest) -> CommitOutcome:
        """See `lakeward.ports.RewritableLake`."""
        path = request.path
        table = self._load(path)
        check_format(table)
        check_owner(path, table, request.table_id, request.incarnation)
        if table.metadata.current_snapshot_id != request.base_snapshot:
            return CommitOutcome.CONFLICT
        builder = SnapshotBuilder(table, request.ids, self._clock.wall_ms())
        return self._send(path, table, builder.rewrite(request.files), request.ids)

    def plan_upkeep(self, path: TablePath, upkeep_id: RoundId, most: int) -> UpkeepPlan | None:
        """See `lakeward.ports.UpkeepLake`: data files are merged."""
        table = self._load_own(path, upkeep_id.table_id)
        if self._options.compaction != "own" or table.metadata.format_version not in FORMAT_VERSIONS:
            return None
        counted, self._counted = self._counted, None
        known = counted is not None and counted[0] == table.metadata_location
        live = counted[1] if counted is not None and known else Live.of(table)
        planner = Planner(path, table, live, self._options, self._storage(table), self._clock.wall_ms())
        return planner.plan(upkeep_id, most, _round_prefix(table, upkeep_id), self._storage_properties())

    def commit_upkeep(self, commit: UpkeepCommit) -> UpkeepOutcome:
        """See `lakeward.ports.UpkeepLake`."""
        path, upkeep_id = commit.path, commit.upkeep_id
        table = self._load(path)
        check_owner(path, table, upkeep_id.table_id, upkeep_id.incarnation)
        if table.metadata.current_snapshot_id != commit.base_snapshot:
            return UpkeepOutcome.CONFLICT
        check_format(table)
        change = Replacing(table, self._storage(table)).build(commit)
        if change is None:
            return UpkeepOutcome.VOID
        builder = SnapshotBuilder(table, commit.ids, self._clock.wall_ms())
        outcome = self._send(path, table, builder.replace(change, {UPKEEP: str(upkeep_id)}), commit.ids)
        return UpkeepOutcome.LANDED if outcome is CommitOutcome.LANDED else UpkeepOutcome.CONFLICT

    def upgrade(self, path: TablePath) -> FormatUpgrade:
        """See `lakeward.ports.UpgradableLake`: to format version 3."""
        upgrading = Upgrading(self._client, self._clock, self._storage, lambda file: self.delete([file]))
        return upgrading.upgrade(path, lambda: self.new_ids(path))

    def count_files(self, path: TablePath) -> FileCounts:
        """See `lakeward.ports.CountedLake`."""
        table = self._load(path)
        live = Live.of(table)
        self._counted = table.metadata_location, live
        return count_files(live, pins.target_size(table, self._options))

    def find_orphans(self, path: TablePath, kept: Collection[str], before_ms: int) -> tuple[OrphanFile, ...]:
        """See `lakeward.ports.OrphanLake`."""
        return find_orphans(path, lambda: self._load(path), self._storage(self._load(path)), kept, before_ms)

    def _send(self, path: TablePath, table: Table, prepared: Prepared, ids: CommitIds) -> CommitOutcome:
        """Send a commit that is built on a table once, and find out what has become of it.

        Raises:
            OutcomeUnknownError: it may have landed, or may yet.
        """
        try:
            outcome, metadata = self._client.send(table, prepared.requirements, prepared.updates)
        except LakeError:
            # Of two copies of the request the second one may have been refused.
            if self._client.fate(path, table, ids.snapshot_id) is Fate.LANDED:
                return CommitOutcome.LANDED
            raise
        if outcome is Sent.CONFLICT or metadata is None:
            return self._settled(path, table, ids)
        with suppress(StorageError):
            # The commit has landed, whatever happens now; the next expiry finds a metadata file that stays.
            files.trim_metadata(table.metadata, metadata, self._storage(table))
        return CommitOutcome.LANDED

    def _settled(self, path: TablePath, base: Table, ids: CommitIds) -> CommitOutcome:
        """Return the outcome of a conflict.

        Raises:
            OutcomeUnknownError: no other commit is visible that could have caused the conflict.
        """
        try:
            fate = self._client.fate(path, base, ids.snapshot_id)
        except LakeError as error:
            message = f"{path}: the catalog answered with a conflict and cannot say whose: {error}"
            raise OutcomeUnknownError(message) from error
        if fate is Fate.OPEN:
            message = (
                f"{path}: the catalog answered with a conflict, yet main still stands where the commit was "
                f"built: another copy of the request may be under way"
            )
            raise OutcomeUnknownError(message)
        return CommitOutcome.LANDED if fate is Fate.LANDED else CommitOutcome.CONFLICT

    def find(self, path: TablePath, round_id: RoundId, step: int) -> int | None:
        """See `lakeward.ports.Lake.find`."""
        table = self._client.load(path)
        if table is None:
            return None
        wanted = (str(round_id.incarnation), round_id.name, str(step))
        for snapshot in Ancestry.of(table.metadata).snapshots:
            summary = summary_of(snapshot)
            if (summary.get(INCARNATION), summary.get(ROUND), summary.get(STEP)) == wanted:
                return snapshot.snapshot_id
        head = read_head(path, table)
        properties = table.metadata.properties
        copied = (properties.get(COPIED_INCARNATION), properties.get(COPIED_ROUND), properties.get(COPIED_STEP))
        behind = head.commit is not None and str(head.commit.snapshot_id) == properties.get(COPIED_SNAPSHOT)
        return int(properties[COPIED_SNAPSHOT]) if behind and copied == wanted else None

    def file_prefix(self, path: TablePath, round_id: RoundId) -> str:
        """See `lakeward.ports.Lake.file_prefix`."""
        return _round_prefix(self._load_own(path, round_id.table_id), round_id)

    def list_prefix(self, path: TablePath, prefix: str) -> tuple[str, ...]:  # noqa: ARG002 - the prefix is a full path
        """See `lakeward.ports.Lake.list_prefix`."""
        return self._storage_at(prefix).list(prefix)

    def commit_leftovers(self, path: TablePath, ids: CommitIds) -> tuple[str, ...]:
        """See `lakeward.ports.Lake.commit_leftovers`."""
        table = self._load(path)
        return files.leftovers(table, self._storage(table), ids)

    def referenced(self, path: TablePath, files: Collection[str]) -> frozenset[str]:
        """See `lakeward.ports.Lake.referenced`."""
        return _referenced(self._load(path), files)

    def delete(self, files: Collection[str]) -> None:
        """See `lakeward.ports.Lake.delete`."""
        for path in files:
            self._storage_at(path).delete(path)

    def expire(self, path: TablePath, keep: frozenset[int]) -> int:
        """See `lakeward.ports.Lake.expire`."""
        table = self._load(path)
        plans = self._plans(table)
        if plans is not None:
            plans.settle()
        self.delete(self._dead_metadata(table))
        configured = Kept(self._options.keep_snapshots, int(1000 * self._options.keep_snapshots_s))
        retention = Retention(table.metadata, configured, self._clock.wall_ms())
        ids = expire.expirable(table.metadata, retention, keep)
        if not ids:
            return 0
        plan = "" if plans is None else plans.write(self.new_ids(path).uuid, ids)
        try:
            outcome, _ = self._client.send(table, *expire.removal(table, ids, retention.ended()))
        except OutcomeUnknownError:
            # Settled by looking; what cannot be settled now is at the next expiry or start.
            outcome = None
        except LakeError:
            if self._settled_expiry(path, table, plan, may_land=False) is not Expiry.LANDED:
                raise
            return len(ids)
        may_land = outcome is None or not self._client.is_local
        settled = self._settled_expiry(path, table, plan, may_land=may_land)
        return len(ids) if settled is Expiry.LANDED else 0

    def close(self) -> None:
        """See `lakeward.ports.Lake.close`."""
        self._client.close()

    def _settled_expiry(self, path: TablePath, base: Table, plan: str, *, may_land: bool) -> Expiry | None:
        """Check whether an expiry landed, and delete what it freed; None if files must not be deleted at all."""
        now = self._load(path)
        storage = self._storage(now)
        settled = ExpiryPlans(now, storage).settle_one(plan, may_land=may_land) if plan else None
        files.trim_metadata(base.metadata, now.metadata, storage)
        return settled

    def _plans(self, table: Table) -> ExpiryPlans | None:
        """Return the table's plans; None if the table forbids deleting files (`gc.enabled`)."""
        return ExpiryPlans(table, self._storage(table)) if files.may_delete(table.metadata) else None

    def _clean_up_start(self, table: Table, incarnation: Incarnation) -> None:
        """Delete what an earlier start left that died during a commit or an expiry: no journal lists that."""
        storage = self._storage(table)
        # The next start finds them again; an earlier start may be deleting them too, at the end of its expiry.
        with suppress(StorageError, OSError):
            for path in [*files.dead_stamps(table, storage, incarnation), *self._dead_metadata(table)]:
                storage.delete(path)
            if (plans := self._plans(table)) is not None:
                plans.settle()

    def _dead_metadata(self, table: Table) -> list[str]:
        return files.dead_metadata(table, self._storage(table), swaps_in_order=self._client.is_local)

    def _send_stamp(self, path: TablePath, table: Table, incarnation: Incarnation) -> None:
        """Try once; the head shows whether it landed."""
        check_format(table)
        ids = replace(self.new_ids(path), uuid=files.stamp_name(incarnation))
        summary = {INCARNATION: str(incarnation)}
        if TABLE_ID in table.metadata.properties:
            summary[TABLE_ID] = table.metadata.properties[TABLE_ID]
        prepared = SnapshotBuilder(table, ids, self._clock.wall_ms()).stamp(summary)
        try:
            outcome, metadata = self._client.send(table, prepared.requirements, prepared.updates)
        except OutcomeUnknownError:
            # A stamp may be sent again: a late one conflicts because main has moved on, or it is this start's anyway.
            return
        if outcome is Sent.CONFLICT and self._client.fate(path, table, ids.snapshot_id) is Fate.LOST:
            self.delete([update.snapshot.manifest_list for update in prepared.updates if hasattr(update, "snapshot")])
        if metadata is not None:
            with suppress(StorageError):  # as after a commit
                files.trim_metadata(table.metadata, metadata, self._storage(table))

    def _head_of(self, path: TablePath, table: Table) -> LakeHead:
        return read_head(path, table, target_size(table, self._options))

    def _load(self, path: TablePath) -> Table:
        table = self._client.load(path)
        if table is None:
            message = f"{path}: the lake has no such table"
            raise TableGoneError(message)
        return table

    def _load_own(self, path: TablePath, table_id: int) -> Table:
        """Load the lake table of a table id; after a pause, the name may belong to a later table's lake table."""
        table = self._load(path)
        owner = table.metadata.properties.get(TABLE_ID)
        if owner is not None and int(owner) != table_id:
            message = f"{path}: the lake table belongs to table id {owner}, expected {table_id}"
            raise TableGoneError(message)
        return table

    def _storage(self, table: Table) -> Storage:
        return self._storage_at(table.location())

    def _storage_at(self, uri: str) -> Storage:
        return Storage(uri, self._storage_properties())

    def _storage_properties(self) -> dict[str, str]:
        return {
            key: value for key, value in self._client.catalog.properties.items() if key.startswith(("s3.", "client."))
        }


def _round_prefix(table: Table, round_id: RoundId) -> str:
    return f"{files.data_root(table.metadata)}{round_id}/"


def _referenced(table: Table, named: Collection[str]) -> frozenset[str]:
    return files.referenced(table, named)


def _check_fence(table: Table, request: CommitRequest) -> None:
    """Check on the metadata that the commit is built on: whose table, whose stamp, which newest commit.

    Raises:
        FencedError: one of them is another one now.
    """
    owner = table.metadata.properties.get(TABLE_ID)
    if owner != str(request.table_id):
        message = f"{request.path}: the lake table belongs to table id {owner}, expected {request.table_id}"
        raise FencedError(message)
    ancestry = Ancestry.of(table.metadata)
    stamp = newest_stamp(ancestry)
    if stamp != request.incarnation:
        message = f"{request.path}: the stamp on the head is {stamp}, expected {request.incarnation}"
        raise FencedError(message, by="" if stamp is None else str(stamp))
    newest = newest_commit_id(ancestry)
    if newest is None:
        newest = _copied_commit_id(table, request)
    if newest != request.base_commit:
        message = (
            f"{request.path}: the newest commit with offsets is snapshot {newest}, expected {request.base_commit}, "
            f"from which the round was enumerated"
        )
        raise FencedError(message)


def _copied_commit_id(table: Table, request: CommitRequest) -> int | None:
    try:
        commit = read_head(request.path, table).commit
    except RolledBackError as rolled_back:
        raise FencedError(str(rolled_back)) from rolled_back
    return None if commit is None else commit.snapshot_id
