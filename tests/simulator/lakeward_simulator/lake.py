"""The lake in memory: stamps, compare-and-swap, commits of unknown outcome that land late, files nobody names."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lakeward.errors import FencedError, LakeError, OutcomeUnknownError, SchemaMismatchError
from lakeward.model.results import CommitIds, CommitOutcome, LakeFile, LakeHead, OffsetCommit
from lakeward_simulator.letters import rows_in
from lakeward_simulator.records import Records, Row
from lakeward_simulator.scheduler import FENCE_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.results import CommitRequest
    from lakeward.model.splits import Split
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import SourceBatch
    from lakeward_simulator.world import World

READ = ("slow", "fails")
COMMIT = ("slow", "fails", "unknown", "conflict")
TARGET = 6144
"""So small that a round gathers the rows of its buckets or not, as it happens."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot of a lake table: a stamp, a compaction (neither has `request`), or a commit."""

    number: int
    stamp: Incarnation | None
    request: CommitRequest | None = None
    merged: tuple[tuple[tuple[str, ...], str], ...] = ()
    """Of a compaction: files, and the file that has their rows now."""


@dataclass(slots=True)
class LakeTable:
    """One lake table."""

    table_id: int
    location: str
    opened_by: Incarnation
    buckets: int
    """The count by which it divides rows, as long as it does so by the source's bucket key."""
    log: list[Snapshot] = field(default_factory=list)

    @property
    def stamp(self) -> Incarnation | None:
        """The newest stamp."""
        return next((one.stamp for one in reversed(self.log) if one.stamp is not None), None)

    @property
    def newest(self) -> Snapshot | None:
        """The newest commit that carries offsets."""
        return next((one for one in reversed(self.log) if one.request is not None), None)

    def named(self) -> set[str]:
        """Return the paths of all files that its snapshots name, manifests included."""
        commits = [one.request for one in self.log if one.request is not None]
        merged = {path for one in self.log for _, path in one.merged}
        return merged.union(file for request in commits for file in named_by(self, request))

    def live(self) -> list[str]:
        """Return the files that hold its rows, in the order of their rows."""
        live: dict[str, None] = {}
        for one in self.log:
            if one.request is not None:
                live |= dict.fromkeys(file.path for file in one.request.files)
            for files, path in one.merged:
                live = dict.fromkeys(path if file in files else file for file in live)
        return [*live]


@dataclass(eq=False, slots=True)
class _Late:
    """A commit whose sender got no answer; it lands after so many more calls, or when its time has come."""

    table: LakeTable
    request: CommitRequest
    size: int
    calls: int


class SimLake:
    """See `lakeward.ports.Lake`."""

    name = "sim"

    def __init__(self, world: World) -> None:
        """Start empty."""
        self._world = world
        self.tables: dict[TablePath, LakeTable] = {}
        self.aside: list[LakeTable] = []
        self.files: dict[str, tuple[Row, ...]] = {}
        self.known: dict[str, frozenset[str]] = {}
        """Of each data file: the files of its round that its writer knew of, and could replace rows of."""
        self._number = 0
        self._late: list[_Late] = []
        self.sent: list[tuple[LakeTable, CommitRequest]] = []
        """Commits that are on their way to the catalog."""
        self.stray: set[str] = set()
        """Files that tasks closed which woke up after the fence time, when nothing names their round any more."""

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        """See Protocol."""
        self._world.checks.opening(table.path, incarnation)
        self._call("open table", READ, table.table_id)
        found = self.tables.get(table.path)
        if found is not None:
            _refuse_overtaken(found, table.path, incarnation)
        if found is not None and found.table_id != table.table_id:
            if found.table_id > table.table_id:
                message = f"{table.path}: the lake table belongs to a later table"
                raise LakeError(message)
            self.aside.append(self.tables.pop(table.path))
            found = None
        if found is None:
            location = f"lake/{table.path}-{table.table_id}"
            self.tables[table.path] = LakeTable(table.table_id, location, incarnation, table.buckets)
        elif table.bucket_key and found.buckets != table.buckets:
            message = f"{table.path}: the lake divides it by {found.buckets}, the source by {table.buckets}"
            raise SchemaMismatchError(message)
        return self._head(table.path)

    def head(self, path: TablePath) -> LakeHead | None:
        """See Protocol."""
        found = self.tables.get(path)
        self._call("head", READ, None if found is None else found.table_id)
        return self._head(path) if path in self.tables else None

    def stamp(self, path: TablePath, incarnation: Incarnation) -> LakeHead:
        """See Protocol."""
        self._call("stamp", READ, self.tables[path].table_id)
        table = self.tables[path]
        _refuse_overtaken(table, path, incarnation)
        if table.stamp != incarnation:
            table.log.append(Snapshot(self._next(), incarnation))
        return self._head(path)

    def writer_task(self, table: TableSpec, head: LakeHead, round_id: RoundId) -> bytes:
        """See Protocol."""
        del head
        return self.file_prefix(table.path, round_id).encode()

    def new_ids(self, path: TablePath) -> CommitIds:
        """See Protocol."""
        del path
        return CommitIds(f"c{self._next()}", self._next())

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """See Protocol."""
        self._world.checks.sending(request)
        sent = self.tables.get(request.path)
        on_its_way = None if sent is None else (sent, request)
        if on_its_way is not None:
            self.sent.append(on_its_way)
        try:
            how = self._call("commit", COMMIT, request.table_id)
        finally:
            if on_its_way is not None:
                self.sent.remove(on_its_way)
        table = self._table(request)
        try:
            _check_fence(table, request)
        except FencedError:
            self._world.checks.fenced(table, request)
            raise
        self.files[_manifest(table, request.ids)] = ()
        size = len(table.log)
        self._world.point("lake")
        if how == "conflict":
            table.log.append(Snapshot(self._next(), None))  # somebody compacted
        if how == "unknown" and (chance := self._world.random.random()) < 0.75:
            # It never lands, or later than anybody waits for it, or right after somebody has looked for it.
            if chance < 0.25:
                self._late.append(_Late(table, request, size, self._world.random.randint(1, 4)))
            elif chance < 0.5:
                late = _Late(table, request, size, 0)
                self._late.append(late)
                self._world.scheduler.after(chance * 20, partial(self._land_late, late))
            self._unknown(request.path)
        if not self._land(table, request, size):
            return CommitOutcome.CONFLICT
        if how == "unknown":
            self._unknown(request.path)
        return CommitOutcome.LANDED

    def find(self, path: TablePath, round_id: RoundId, step: int) -> int | None:
        """See Protocol."""
        self._world.checks.looking_for(path, round_id, step)
        self._call("find", READ, round_id.table_id)
        table = self.tables.get(path)
        commits = (one.request for one in table.log if one.request is not None) if table else ()
        return next((r.ids.snapshot_id for r in commits if (r.round_id, r.step) == (round_id, step)), None)

    def file_prefix(self, path: TablePath, round_id: RoundId) -> str:
        """See Protocol."""
        return f"{self._location(path)}/data/{round_id.incarnation}/{round_id.name}/"

    def list_prefix(self, path: TablePath, prefix: str) -> tuple[str, ...]:
        """See Protocol."""
        self._call("list", READ, self._id(path))
        return tuple(sorted(file for file in self.files if file.startswith(prefix)))

    def commit_leftovers(self, path: TablePath, ids: CommitIds) -> tuple[str, ...]:
        """See Protocol."""
        name = f"{self._location(path)}/metadata/{ids.uuid}"
        return (name,) if name in self.files else ()

    def referenced(self, path: TablePath, files: Collection[str]) -> frozenset[str]:
        """See Protocol."""
        self._call("referenced", READ, self._id(path))
        table = self.tables.get(path)
        return frozenset(files) & (table.named() if table is not None else set())

    def delete(self, files: Collection[str]) -> None:
        """See Protocol."""
        self._call("delete", ("slow", "fails", "unknown"), None)
        for file in files:
            self._world.checks.deleting(file)
            self.files.pop(file, None)

    def expire(self, path: TablePath, keep: frozenset[int]) -> int:
        """See Protocol; history costs nothing here."""
        del path, keep
        return 0

    def close(self) -> None:
        """See Protocol."""

    def _land(self, table: LakeTable, request: CommitRequest, size: int) -> bool:
        """Swap: only on the very head that was built on."""
        if len(table.log) != size:
            return False
        table.log.append(Snapshot(request.ids.snapshot_id, request.incarnation, request))
        self._world.landed(table, request)
        return True

    def _head(self, path: TablePath) -> LakeHead:
        table = self.tables[path]
        last = table.log[-1].number if table.log else None
        newest = table.newest.request if table.newest is not None else None
        commit = _offsets(newest) if newest else None
        return LakeHead(
            path, table.table_id, table.location, last, table.stamp, commit, commit, target_file_bytes=TARGET
        )

    def _table(self, request: CommitRequest) -> LakeTable:
        table = self.tables.get(request.path)
        if table is None or table.table_id != request.table_id:
            message = f"{request.path}: expected the lake table of table id {request.table_id}"
            raise LakeError(message)
        return table

    def _location(self, path: TablePath) -> str:
        table = self.tables.get(path)
        if table is None:
            message = f"{path}: no such lake table"
            raise LakeError(message)
        return table.location

    def _id(self, path: TablePath) -> int | None:
        return self.tables[path].table_id if path in self.tables else None

    @staticmethod
    def _unknown(path: TablePath) -> None:
        message = f"{path}: no answer to the commit"
        raise OutcomeUnknownError(message)

    def may_land(self) -> Iterator[tuple[LakeTable, CommitRequest]]:
        """Return the commits that were sent, have not landed, and still could."""
        for one in self._late:
            if len(one.table.log) == one.size:
                yield one.table, one.request
        for table, request in self.sent:
            if table.stamp == request.incarnation and _base(table) == request.base_commit:
                yield table, request

    def on_their_way(self) -> Iterator[CommitRequest]:
        """Return the commits whose senders still wait for the catalog."""
        return (request for _, request in self.sent)

    def land(self, table: LakeTable, request: CommitRequest) -> None:
        """Let a commit land whose sender waits no longer; for tests."""
        self._land(table, request, len(table.log))

    def closing(self, path: str) -> None:
        """A task closes a file: a journal must name its round, also where the driver takes the task for dead.

        Except for a task that the driver has given up, and that slept for the fence time: what it does when it wakes
        up, before it looks at its clock, nobody can know.
        """
        acting = self._world.acting
        if acting is None or self._world.checks.journal_of(path):
            return
        if getattr(acting, "outlives", False) and acting.slept_s >= FENCE_S:
            self.stray.add(path)
        else:
            self._world.checks.unnamed(acting, path)

    def _land_late(self, late: _Late) -> None:
        if late in self._late:
            self._late.remove(late)
            self._land(late.table, late.request, late.size)

    def _call(self, what: str, allowed: tuple[str, ...], table_id: int | None) -> str | None:
        for late in [*self._late]:
            late.calls -= 1
            if late.calls == 0:
                self._land_late(late)
        how = self._world.call("lake", what, allowed, table_id)
        if how == "fails":
            message = f"lake, {what}: refused"
            raise LakeError(message)
        return how

    def _next(self) -> int:
        self._number += 1
        return self._number


class SimWriter:
    """See `lakeward.ports.LakeWriter`. Closes a file at `target` rows, at a checkpoint from half of that on."""

    def __init__(  # noqa: PLR0917 - what is written, then where
        self,
        lake: SimLake,
        stem: str,
        target: int,
        before: tuple[LakeFile, ...],
        partition: bytes = b"",
        table_id: int = 0,
    ) -> None:
        """Write under a stem.

        Args:
            lake: where to.
            stem: what names of files begin with.
            target: rows of a file.
            before: files that it goes on from.
            partition: of a lake partitioning, empty without one.
            table_id: of the rows that dead letters stand for.
        """
        self._table_id = table_id
        self._lake = lake
        self._stem = stem
        self._target = target
        self._before = before
        self._partition = partition
        self._open: list[Row] = []
        self._closed: list[LakeFile] = []
        self._rolled = 0

    def write(self, batch: SourceBatch) -> None:
        """See Protocol."""
        records = batch.records
        self.take(records.rows if isinstance(records, Records) else rows_in(records, self._table_id))

    def take(self, rows: Iterable[Row]) -> None:
        """Take rows."""
        self._open += rows
        if len(self._open) >= self._target:
            self._close_file()

    @staticmethod
    def leaves_out(row: Row) -> bool:
        """Say whether a record becomes no row of a data file."""
        del row
        return False

    @property
    def all_rows_flushed(self) -> bool:
        """See Protocol."""
        return not self._open

    def roll(self) -> tuple[LakeFile, ...]:
        """See Protocol."""
        if 2 * len(self._open) >= self._target:
            self._close_file()
        self._rolled = len(self._closed)
        return (*self._before, *self._closed)

    def close(self) -> tuple[LakeFile, ...]:
        """See Protocol."""
        self._close_file()
        return (*self._before, *self._closed)

    def abort(self) -> None:
        """See Protocol."""
        for file in self._closed[self._rolled :]:
            self._lake.files.pop(file.path, None)

    @property
    def left_out(self) -> int:
        """See Protocol; it writes every record."""
        return 0

    @property
    def timings_s(self) -> Mapping[str, float]:
        """See Protocol."""
        return {}

    def _close_file(self) -> None:
        if not self._open:
            return
        path = f"{self._stem}-{len(self._closed)}"
        while path in self._lake.known:  # real names are random, so that of a deleted file never comes back
            path += "x"
        self._lake.closing(path)
        self._lake.files[path] = tuple(self._open)
        self._lake.known[path] = frozenset(file.path for file in (*self._before, *self._closed))
        rows = sum(not self.leaves_out(row) for row in self._open)
        self._closed.append(LakeFile(path, "data", rows, len(self._open), self._partition))
        self._open = []


def stem_of(task: bytes, split: Split, attempt: int) -> str:
    """Return what the names of a writer's files begin with."""
    return f"{task.decode()}{split.split_id}-{attempt}"


def _refuse_overtaken(table: LakeTable, path: TablePath, incarnation: Incarnation) -> None:
    for found in (table.stamp, table.opened_by):
        if found is not None and found.succeeds(incarnation):
            message = f"{path}: taken over by {found}"
            raise FencedError(message, str(found))


def _check_fence(table: LakeTable, request: CommitRequest) -> None:
    if table.stamp != request.incarnation:
        message = f"{request.path}: expected the stamp {request.incarnation}, found {table.stamp}"
        raise FencedError(message, str(table.stamp))
    if (base := _base(table)) != request.base_commit:
        message = f"{request.path}: expected base commit {request.base_commit}, found {base}"
        raise FencedError(message)


def named_by(table: LakeTable, request: CommitRequest) -> set[str]:
    """Return the paths of all files that a commit names, its manifest included."""
    return {_manifest(table, request.ids), *(file.path for file in request.files)}


def _base(table: LakeTable) -> int | None:
    return table.newest.number if table.newest is not None else None


def _offsets(request: CommitRequest) -> OffsetCommit:
    return OffsetCommit(
        request.ids.snapshot_id,
        dict(request.offsets),
        request.source_path,
        request.incarnation,
        request.round_id.name,
        request.step,
        0,
    )


def _manifest(table: LakeTable, ids: CommitIds) -> str:
    return f"{table.location}/metadata/{ids.uuid}"
