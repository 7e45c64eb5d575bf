"""A lake of files in a folder: what there is to do beside writing a file in the lake's own format.

A table's state, a JSON file, has its columns and its snapshots in order; data files lie below `files`. Whoever changes
a table holds its lock file and replaces the whole state, so a commit checks the fence and lands in one step. A plugin
writes a `FileWriter` that writes a file, and gives its `FileLake` a name. One whose states lie elsewhere overrides
`locked`, `read_state` and `write_state`.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lakeward.errors import FencedError, LakeError, RolledBackError, RowError, SchemaMismatchError, StorageError
from lakeward.model.identity import Incarnation
from lakeward.model.lake_rows import RowConverter
from lakeward.model.results import CommitIds, CommitOutcome, LakeFile, LakeHead, OffsetCommit
from lakeward.model.tables import BUCKET_COLUMN, OFFSET_COLUMN, TableBucket

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lakeward.model.batches import SourceBatch
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.identity import RoundId
    from lakeward.model.results import CommitRequest
    from lakeward.model.splits import Split
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Clock, RowCheck

State = dict[str, Any]
"""A table: `table_id`, `opened_by`, `columns` (name to type), `newest_commit`, and `snapshots`, the oldest first."""


class FileLake:
    """See `lakeward.ports.Lake`. Left to say is `name`, that of the entry point."""

    name = ""

    def __init__(self, root: Path, *, target_bytes: int, keep_snapshots: int, clock: Clock) -> None:
        """Create the folder. A file is closed at `target_bytes`; expiry keeps so many snapshots.

        Raises:
            StorageError: it cannot be written.
        """
        self._root = root
        self._target_bytes = target_bytes
        self._keep = keep_snapshots
        self._clock = clock
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{root}: cannot be written ({error.strerror or error})"
            raise StorageError(message) from error

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        """Create the table or append its new columns; set aside one that belongs to an earlier table id."""
        with self.locked(table.path):
            state = self.read_state(table.path)
            if state is not None:
                _refuse_overtaken(table.path, state, incarnation)
                if state["table_id"] > table.table_id:
                    message = f"{table.path}: the lake table belongs to table id {state['table_id']}"
                    raise LakeError(message)
                if state["table_id"] < table.table_id:
                    self._file(table.path).rename(self._root / f"{table.path}.{state['table_id']}.set-aside.json")
                    state = None
            if state is None:
                state = {"table_id": table.table_id, "opened_by": str(incarnation), "columns": {}, "snapshots": []}
                state["newest_commit"] = None
            state["columns"] = _merged_columns(table, state["columns"])
            self.write_state(table.path, state)
            return self._head(table.path, state)

    def head(self, path: TablePath) -> LakeHead | None:
        """Return the table's newest state; None where there is no such table."""
        state = self.read_state(path)
        return None if state is None else self._head(path, state)

    def stamp(self, path: TablePath, incarnation: Incarnation) -> LakeHead:
        """Add an empty snapshot with this start's stamp, unless it has the newest one already."""
        with self.locked(path):
            state = self._existing(path)
            _refuse_overtaken(path, state, incarnation)
            if _stamp(state) != incarnation:
                state["snapshots"].append(self._snapshot(secrets.randbits(62), incarnation))
                self.write_state(path, state)
            return self._head(path, state)

    def writer_task(self, table: TableSpec, head: LakeHead, round_id: RoundId) -> bytes:  # noqa: ARG002 - as Protocol
        """Return what the plugin's `writer` needs in a subtask."""
        return json.dumps([self.file_prefix(table.path, round_id), self._target_bytes]).encode()

    def new_ids(self, path: TablePath) -> CommitIds:  # noqa: ARG002 - as Protocol
        """Choose the ids of a commit."""
        return CommitIds(secrets.token_hex(8), secrets.randbits(62))

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """Check the fence and add the snapshot under one lock: another commit can never come between."""
        with self.locked(request.path):
            state = self._existing(request.path)
            _check_fence(state, request)
            state["snapshots"].append(
                self._snapshot(request.ids.snapshot_id, request.incarnation)
                | {
                    "round": request.round_id.name,
                    "step": request.step,
                    "files": [file.path for file in request.files],
                    "offsets": [[b.table_id, b.partition_id, b.bucket, o] for b, o in request.offsets.items()],
                    "source_path": request.source_path,
                    "complete_ms": request.complete_ms,
                }
            )
            state["newest_commit"] = request.ids.snapshot_id
            self.write_state(request.path, state)
        return CommitOutcome.LANDED

    def find(self, path: TablePath, round_id: RoundId, step: int) -> int | None:
        """Return the snapshot id of a round's commit."""
        wanted = (str(round_id.incarnation), round_id.name, step)
        snapshots = (self.read_state(path) or {"snapshots": []})["snapshots"]
        return next((s["id"] for s in snapshots if (s["stamp"], s.get("round"), s.get("step")) == wanted), None)

    def file_prefix(self, path: TablePath, round_id: RoundId) -> str:
        """Return the folder of a round's files."""
        return str(self._root / "files" / str(path) / str(round_id))

    def list_prefix(self, path: TablePath, prefix: str) -> tuple[str, ...]:  # noqa: ARG002 - as Protocol
        """Return all files of a round, committed or not."""
        return tuple(str(file) for file in sorted(Path(prefix).rglob("*")) if file.is_file())

    def commit_leftovers(self, path: TablePath, ids: CommitIds) -> tuple[str, ...]:  # noqa: ARG002 - as Protocol
        """Return what a commit wrote beside the state: nothing."""
        return ()

    def referenced(self, path: TablePath, files: Collection[str]) -> frozenset[str]:
        """Return those of `files` that a snapshot names."""
        state = self.read_state(path) or {"snapshots": []}
        return frozenset(files) & {file for snapshot in state["snapshots"] for file in snapshot["files"]}

    def delete(self, files: Collection[str]) -> None:
        """Delete files; a missing one is no error."""
        for file in files:
            Path(file).unlink(missing_ok=True)

    def expire(self, path: TablePath, keep: frozenset[int]) -> int:
        """Remove old snapshots; the next one that stays takes over their files."""
        with self.locked(path):
            state = self._existing(path)
            snapshots = state["snapshots"]
            stamped = snapshots[-1]["id"] if snapshots else None
            spared = {*keep, state["newest_commit"], stamped, *(s["id"] for s in snapshots[-self._keep :])}
            kept: list[State] = []
            files: list[str] = []
            for snapshot in snapshots:
                files += snapshot["files"]
                if snapshot["id"] in spared:
                    kept.append(snapshot | {"files": files})
                    files = []
            if len(kept) < len(snapshots):
                self.write_state(path, state | {"snapshots": kept})
            return len(snapshots) - len(kept)

    def close(self) -> None:
        """Free what is held: nothing."""

    def _snapshot(self, snapshot_id: int, incarnation: Incarnation) -> State:
        return {"id": snapshot_id, "stamp": str(incarnation), "made_ms": self._clock.wall_ms(), "files": []}

    def _head(self, path: TablePath, state: State) -> LakeHead:
        snapshots = state["snapshots"]
        newest = state["newest_commit"]
        commit = next((s for s in snapshots if s["id"] == newest), None)
        if newest is not None and commit is None:
            message = f"{path}: expected commit {newest} in {self._file(path)}, found a table that was rolled back"
            raise RolledBackError(message)
        own = None if commit is None else _offset_commit(commit)
        last = snapshots[-1]["id"] if snapshots else None
        columns = tuple(state["columns"])
        return LakeHead(path, state["table_id"], str(self._root), last, _stamp(state), own, own, columns=columns)

    def _file(self, path: TablePath) -> Path:
        return self._root / f"{path}.json"

    @contextmanager
    def locked(self, path: TablePath) -> Iterator[None]:
        """Hold the table's lock file, against other threads and processes."""
        with (self._root / f"{path}.lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def read_state(self, path: TablePath) -> State | None:
        """Return a table's state, None where there is no such table."""
        try:
            state: State = json.loads(self._file(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return state

    def _existing(self, path: TablePath) -> State:
        state = self.read_state(path)
        if state is None:
            message = f"{path}: the lake has no such table"
            raise LakeError(message)
        return state

    def write_state(self, path: TablePath, state: State) -> None:
        """Replace a table's state, which is locked.

        Raises:
            StorageError: it cannot be written.
        """
        new = self._root / f"{path}.new"
        try:
            new.write_text(json.dumps(state), encoding="utf-8")
            new.replace(self._file(path))
        except OSError as error:
            message = f"{self._file(path)}: cannot be written ({error.strerror or error})"
            raise StorageError(message) from error


class FileWriter(ABC):
    """See `lakeward.ports.LakeWriter`. Left to write is `write_file`.

    Each record becomes a row, with its change, offset, timestamp and bucket: of a primary-key table the files hold
    changes, which a reader applies in order.
    """

    suffix = "data"
    """What the names of files end in."""

    def __init__(  # noqa: PLR0917 - where it writes, and what it is the writer of
        self,
        folder: Path,
        table: TableSpec,
        split: Split,
        attempt: int,
        target_bytes: int,
        before: tuple[LakeFile, ...],
    ) -> None:
        """Keep where to write; `before` are the files of the checkpoint that this writer goes on from."""
        self._folder = folder
        self._table = table
        self._bucket = split.bucket.bucket
        self._stem = f"{split.split_id.replace('/', '_')}-{attempt}"
        self._target_bytes = target_bytes
        self._before = before
        self._open: list[pa.RecordBatch] = []
        self._closed: list[LakeFile] = []
        self._rolled = 0
        self._seconds = 0.0

    @classmethod
    def of_task(
        cls, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> Self:
        """Open the writer of one split, from the bytes of `FileLake.writer_task`."""
        folder, target_bytes = json.loads(task)
        return cls(Path(folder), table, split, attempt, target_bytes, () if progress is None else progress.files)

    @abstractmethod
    def write_file(self, rows: pa.Table, file: Path) -> None:
        """Write rows to a new file.

        Raises:
            OSError: the disk refused.
        """

    def write(self, batch: SourceBatch) -> None:
        """Take some records, in order."""
        self._check(batch.records)
        if batch.records.num_rows:
            self._open.append(batch.records)
        if self._open_bytes() >= self._target_bytes:
            self._close_file()

    @property
    def all_rows_flushed(self) -> bool:
        """Whether every record taken so far lies in a closed file."""
        return not self._open

    def roll(self) -> tuple[LakeFile, ...]:
        """Prepare a checkpoint: close the open file from half its target size on."""
        if 2 * self._open_bytes() >= self._target_bytes:
            self._close_file()
        self._rolled = len(self._closed)
        return (*self._before, *self._closed)

    def close(self) -> tuple[LakeFile, ...]:
        """Close all files."""
        self._close_file()
        return (*self._before, *self._closed)

    def abort(self) -> None:
        """Delete the files that no checkpoint can name."""
        for file in self._closed[self._rolled :]:
            Path(file.path).unlink(missing_ok=True)

    @property
    def left_out(self) -> int:
        """Records that became no row: none."""
        return 0

    @property
    def timings_s(self) -> dict[str, float]:
        """Seconds by phase."""
        return {"encode": self._seconds}

    def _open_bytes(self) -> int:
        return sum(batch.nbytes for batch in self._open)

    def _check(self, records: pa.RecordBatch) -> None:
        """Refuse a null where the table has none; the error names bucket, offset and column."""
        for column in self._table.schema:
            values = records.column(column.name)
            if column.nullable or not values.null_count:
                continue
            row = values.is_null().to_pylist().index(True)
            offset = records.column(OFFSET_COLUMN)[row].as_py()
            expected = f"a value of type {column.type}"
            raise RowError.at(self._table.path, self._bucket, offset, column.name, expected=expected, found=None)

    def _close_file(self) -> None:
        if not self._open:
            return
        started = time.perf_counter()
        records = pa.Table.from_batches(self._open)
        records = records.append_column(BUCKET_COLUMN, pa.repeat(pa.scalar(self._bucket, pa.int32()), len(records)))
        file = self._folder / f"{self._stem}-{secrets.token_hex(4)}.{self.suffix}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self.write_file(records, file)
            size = file.stat().st_size
        except OSError as error:
            message = f"{file}: cannot be written ({error.strerror or error})"
            raise StorageError(message) from error
        self._closed.append(LakeFile(str(file), "data", len(records), size))
        self._open.clear()
        self._seconds += time.perf_counter() - started


def row_check(table: TableSpec, split: Split) -> RowCheck:
    """Return what says which rows of a split fit a table whose files have the source's own types."""
    return RowConverter(table, table.schema, split.bucket).misfits


def _stamp(state: State) -> Incarnation | None:
    return Incarnation.parse(state["snapshots"][-1]["stamp"]) if state["snapshots"] else None


def _refuse_overtaken(path: TablePath, state: State, incarnation: Incarnation) -> None:
    for found in (_stamp(state), Incarnation.parse(state["opened_by"])):
        if found is not None and found.succeeds(incarnation):
            message = f"{path}: expected no later start of this service, found {found}"
            raise FencedError(message, str(found))


def _check_fence(state: State, request: CommitRequest) -> None:
    stamp = _stamp(state)
    if stamp != request.incarnation:
        message = f"{request.path}: expected the stamp {request.incarnation}, found {stamp}"
        raise FencedError(message, str(stamp))
    for what, expected, found in (
        ("table id", request.table_id, state["table_id"]),
        ("base commit", request.base_commit, state["newest_commit"]),
    ):
        if expected != found:
            message = f"{request.path}: expected {what} {expected}, found {found}"
            raise FencedError(message)


def _offset_commit(snapshot: State) -> OffsetCommit:
    offsets = {TableBucket(*bucket): offset for *bucket, offset in snapshot["offsets"]}
    stamp = Incarnation.parse(snapshot["stamp"])
    return OffsetCommit(
        snapshot_id=snapshot["id"],
        offsets=offsets,
        source_path=snapshot["source_path"],
        incarnation=stamp,
        round_name=snapshot["round"],
        step=snapshot["step"],
        timestamp_ms=snapshot["made_ms"],
        complete_ms=snapshot["complete_ms"],
    )


def _merged_columns(table: TableSpec, before: dict[str, str]) -> dict[str, str]:
    """Return the columns with the table's new ones, each with its type; check the others."""
    columns = {column.name: str(column.type) for column in table.schema}
    for name, kind in before.items():
        if columns.get(name) != kind:
            message = f"{table.path}: column {name!r}: expected {kind}, found {columns.get(name, 'no such column')}"
            raise SchemaMismatchError(message)
    for name in set(columns) - set(before) if before else ():
        if not table.schema.field(name).nullable:
            message = f"{table.path}: column {name!r}: expected a new column to be nullable"
            raise SchemaMismatchError(message)
    return columns
