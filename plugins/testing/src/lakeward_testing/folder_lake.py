# ruff: noqa: ARG002 - it implements a port; what this simple lake has no use for is still given
"""A lake in a folder, for tests of the coordinator: a JSON file a table, Arrow files for data, real fencing.

It keeps every promise of the port that a coordinator builds on (stamps, compare-and-swap, base commits, finding,
listing, deleting); it has no deletes: rows of a primary-key table keep their change type, `read` folds them.
"""

from __future__ import annotations

import json
import secrets
import threading
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import FencedError, LakeError, TableGoneError
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.lake_rows import RowConverter
from lakeward.model.options import Options
from lakeward.model.results import (
    CommitIds,
    CommitOutcome,
    CommitRequest,
    LakeFile,
    LakeHead,
    OffsetCommit,
    RewriteRequest,
)
from lakeward.model.tables import CHANGE_COLUMN, Change, TableBucket, TablePath, TableSpec
from lakeward.model.upkeep import FileCounts, UpkeepCommit, UpkeepOutcome, UpkeepPlan, UpkeepResult, UpkeepTask
from lakeward.ports import PartitionedRows

if TYPE_CHECKING:
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.partitioning import PartitionField
    from lakeward.model.splits import Split
    from lakeward.ports import Clock, RowCheck, SourceBatch

_LOCK = threading.RLock()  # one process, several services: the lake itself is what they share


class FolderOptions(Options, frozen=True, kw_only=True):
    """Where the lake lies."""

    path: str = ""
    target_bytes: int = 0
    """A file is closed at this size, and at a checkpoint from half of it on; 0: at each checkpoint and never else."""
    merge_from: int = 0
    """So many files of a table are merged by upkeep; 0: none are."""


class FolderLakePlugin:
    """See `lakeward.hooks.plugins.LakePlugin`."""

    options = FolderOptions

    def open(self, options: FolderOptions, clock: Clock) -> FolderLake:
        """See Protocol."""
        return FolderLake(Path(options.path), target_bytes=options.target_bytes, merge_from=options.merge_from)

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        """See `lakeward.hooks.plugins.UpkeepLakePlugin`: the rows of some files, in their order, in one file."""
        folder, files = json.loads(task.detail)
        check()
        batches = [batch for file in files for batch in pa.ipc.open_file(file).read_all().to_batches()]
        written = write_file(Path(folder), f"{task.number}-{attempt}", batches)
        check()
        return UpkeepResult(task.number, 1, written.stat().st_size, str(written).encode())

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> FolderWriter:
        """See Protocol."""
        folder, target_bytes = json.loads(task)
        before = () if progress is None else progress.files
        return FolderWriter(Path(folder), f"{split.split_id}-{attempt}", target_bytes, before)

    def row_check(self, task: bytes, table: TableSpec, split: Split) -> RowCheck:
        """See `lakeward.hooks.plugins.CheckingLakePlugin`."""
        return RowConverter(table, table.schema, split.bucket).misfits

    def partitioner(self, task: bytes, table: TableSpec) -> FolderPartitioner:
        """See `lakeward.hooks.plugins.PartitioningLakePlugin`."""
        return FolderPartitioner(table.lake_partition)

    def partition_writer(  # noqa: PLR0917 - as the Protocol
        self,
        task: bytes,
        table: TableSpec,
        partition: bytes,
        name: str,
        attempt: int,
        before: tuple[LakeFile, ...],
        memory_bytes: int,
    ) -> FolderWriter:
        """See `lakeward.hooks.plugins.PartitioningLakePlugin`."""
        folder, target_bytes = json.loads(task)
        detail = json.dumps([_layout(table.lake_partition), json.loads(partition)]).encode()
        return FolderWriter(Path(folder), f"{name}-{attempt}", target_bytes, before, detail)


class FolderPartitioner:
    """See `lakeward.ports.Partitioner`. A partition's key is the JSON of its values; `bucket` is a CRC of the value."""

    def __init__(self, fields: tuple[PartitionField, ...]) -> None:
        """Keep the layout."""
        self._fields = fields

    def partition(self, records: pa.RecordBatch) -> PartitionedRows:
        """See Protocol."""
        rows = np.zeros(records.num_rows, dtype=np.int64)
        keys: list[list[object]] = [[]]
        for one in self._fields:
            column = pc.dictionary_encode(records.column(one.column), null_encoding="encode")
            values = [_transformed(one, value) for value in column.dictionary.to_pylist()]
            pairs, rows = np.unique(rows * len(values) + column.indices.to_numpy(), return_inverse=True)
            keys = [[*keys[pair // len(values)], values[pair % len(values)]] for pair in pairs.tolist()]
        # Different values of a column may have the same transformed value.
        names = [json.dumps(key).encode() for key in keys]
        partitions = tuple(dict.fromkeys(names))
        place = {name: number for number, name in enumerate(partitions)}
        return PartitionedRows(np.array([place[name] for name in names], dtype=np.int32)[rows], partitions)

    def partition_of(self, file: LakeFile) -> bytes:
        """See Protocol."""
        layout, values = json.loads(file.detail)
        if layout != _layout(self._fields):
            message = f"{file.path}: expected a file of layout {_layout(self._fields)}, found {layout}"
            raise LakeError(message)
        return json.dumps(values).encode()


def _layout_of(detail: str) -> object:
    return json.loads(detail)[0] if detail else None


def _layout(fields: tuple[PartitionField, ...]) -> list[str]:
    return [str(field) for field in fields]


def _transformed(field: PartitionField, value: Any) -> object:  # noqa: ANN401 - of any column
    """Return a value's place in one field of the layout, as JSON can hold it."""
    if value is None:
        return None
    if isinstance(value, date | datetime):
        lengths = {"year": 4, "month": 7, "day": 10, "hour": 13}
        value = value.isoformat()[: lengths.get(field.transform)]
    if field.transform == "bucket":
        return zlib.crc32(str(value).encode()) % (field.argument or 1)
    if field.transform == "truncate":
        width = field.argument or 1
        return value - value % width if isinstance(value, int) else value[:width]
    return value if isinstance(value, str | int | bool) else str(value)


@dataclass
class FolderLake:
    """See `lakeward.ports.Lake`, `RewritableLake`, `UpkeepLake` and `CountedLake`.

    `before_commit` runs between the fence check and the swap.
    `at_upkeep` is called at each step of upkeep, with its name.
    """

    root: Path
    name: str = "folder"
    target_bytes: int = 0
    before_commit: Callable[[CommitRequest], None] = lambda _: None
    after_commit: Callable[[CommitRequest], None] = lambda _: None
    before_rewrite: Callable[[RewriteRequest], None] = lambda _: None
    after_rewrite: Callable[[RewriteRequest], None] = lambda _: None
    expired: int = 0
    deleted: list[str] = field(default_factory=list)
    merge_from: int = 0
    at_upkeep: Callable[[str], None] = lambda _: None

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        """See Protocol."""
        with self._state(table.path, create=True) as state:
            _refuse_overtaken(state, table.path, incarnation)
            if state.get("table_id", table.table_id) > table.table_id:
                message = f"{table.path}: the lake table belongs to table id {state['table_id']}"
                raise LakeError(message)
            if state.get("table_id") != table.table_id:
                state.clear()
                state |= {"table_id": table.table_id, "opened_by": str(incarnation), "log": [], "columns": []}
            known = state.setdefault("columns", [])
            known += [name for name in table.schema.names if name not in known]
        return self._head(table.path)

    def head(self, path: TablePath) -> LakeHead | None:
        """See Protocol."""
        return self._head(path) if self._file(path).exists() else None

    def stamp(self, path: TablePath, incarnation: Incarnation) -> LakeHead:
        """See Protocol."""
        with self._state(path) as state:
            _refuse_overtaken(state, path, incarnation)
            if _stamp(state) != incarnation:
                state["log"].append({"id": secrets.randbits(60), "stamp": str(incarnation)})
        return self._head(path)

    def writer_task(self, table: TableSpec, head: LakeHead, round_id: RoundId) -> bytes:
        """See Protocol."""
        return json.dumps([self.file_prefix(table.path, round_id), self.target_bytes]).encode()

    def new_ids(self, path: TablePath) -> CommitIds:
        """See Protocol."""
        return CommitIds(secrets.token_hex(8), secrets.randbits(60))

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """See Protocol."""
        with self._state(request.path) as state:
            _check(state, request)
            size = len(state["log"])
        self.before_commit(request)
        with self._state(request.path) as state:
            if len(state["log"]) != size:
                return CommitOutcome.CONFLICT
            state["log"].append(_entry(request))
        self.after_commit(request)
        return CommitOutcome.LANDED

    def read_rows(self, path: TablePath, snapshot_id: int) -> Iterator[pa.RecordBatch]:
        """See `lakeward.ports.ReadableLake`; rows keep the columns that a source's batch has after the user's."""
        with self._state(path) as state:
            columns, log = state["columns"], state["log"]
            at = next(number for number, entry in enumerate(log, 1) if entry["id"] == snapshot_id)
            files = [file for file, _ in _live({"log": log[:at]})]
        for file in files:
            yield from pa.ipc.open_file(file).read_all().to_batches()
        if not files:
            yield pa.RecordBatch.from_pylist([], pa.schema([(name, pa.null()) for name in columns]))

    def rewrite(self, request: RewriteRequest) -> CommitOutcome:
        """See `lakeward.ports.RewritableLake`."""
        self.before_rewrite(request)
        with self._state(request.path) as state:
            stamp = _stamp(state)
            if state["table_id"] != request.table_id or stamp != (request.incarnation or stamp):
                message = f"{request.path}: expected the stamp {request.incarnation}, found {stamp}"
                raise FencedError(message, str(stamp))
            if state["log"][-1]["id"] != request.base_snapshot:
                return CommitOutcome.CONFLICT
            files = [file.path for file in request.files]
            state["log"].append({"id": request.ids.snapshot_id, "rewritten": True, "files": files})
        self.after_rewrite(request)
        return CommitOutcome.LANDED

    def find(self, path: TablePath, round_id: RoundId, step: int) -> int | None:
        """See Protocol."""
        if not self._file(path).exists():
            return None
        with self._state(path) as state:
            wanted = (str(round_id.incarnation), round_id.name, step)
            found = ((e.get("stamp"), e.get("round"), e.get("step")) == wanted and e["id"] for e in state["log"])
            return next((number for number in found if number), None)

    def file_prefix(self, path: TablePath, round_id: RoundId) -> str:
        """See Protocol."""
        return str(self.root / str(path) / str(round_id))

    def list_prefix(self, path: TablePath, prefix: str) -> tuple[str, ...]:
        """See Protocol."""
        return tuple(str(file) for file in sorted(Path(prefix).rglob("*")) if file.is_file())

    def commit_leftovers(self, path: TablePath, ids: CommitIds) -> tuple[str, ...]:
        """See Protocol; a commit of this lake leaves nothing beside its entry."""
        return ()

    def referenced(self, path: TablePath, files: Collection[str]) -> frozenset[str]:
        """See Protocol."""
        with self._state(path) as state:
            named = {file for entry in state["log"] for file in entry.get("files", ())}
        return frozenset(files) & named

    def delete(self, files: Collection[str]) -> None:
        """See Protocol."""
        for file in files:
            self.deleted.append(file)
            Path(file).unlink(missing_ok=True)

    def expire(self, path: TablePath, keep: frozenset[int]) -> int:
        """See Protocol; counts that it was asked."""
        self.expired += 1
        return 0

    def plan_upkeep(self, path: TablePath, upkeep_id: RoundId, most: int) -> UpkeepPlan | None:
        """See `lakeward.ports.UpkeepLake`: files of one layout and partition are merged, in their order."""
        self.at_upkeep("plan")
        groups: dict[str, list[str]] = {}
        with self._state(path) as state:
            for file, detail in _live(state):
                groups.setdefault(detail, []).append(file)
        due = [files for files in groups.values() if self.merge_from and len(files) >= self.merge_from][:most]
        folder = self.file_prefix(path, upkeep_id)
        tasks = tuple(_merge_task(number, folder, files) for number, files in enumerate(due))
        self.at_upkeep("planned")
        return UpkeepPlan(path, upkeep_id, "compaction", tasks) if tasks else None

    def count_files(self, path: TablePath) -> FileCounts:
        """See `lakeward.ports.CountedLake`: each file is small, and none has deletes."""
        with self._state(path) as state:
            sizes = [Path(file).stat().st_size for file, _ in _live(state)]
        return FileCounts(len(sizes), sum(sizes), len(sizes), 0, 0)

    def commit_upkeep(self, commit: UpkeepCommit) -> UpkeepOutcome:
        """See `lakeward.ports.UpkeepLake`."""
        self.at_upkeep("commit")
        merged = [
            (json.loads(task.detail)[1], result.detail.decode())
            for task, result in zip(commit.tasks, commit.results, strict=True)
        ]
        with self._state(commit.path) as state:
            who = commit.upkeep_id
            if state["table_id"] != who.table_id or _stamp(state) != who.incarnation:
                message = f"{commit.path}: expected the stamp {who.incarnation}, found {_stamp(state)}"
                raise FencedError(message)
            if state["log"][-1]["id"] != commit.base_snapshot:
                return UpkeepOutcome.CONFLICT
            live = dict(_live(state))
            if not all(file in live for files, _ in merged for file in files):
                return UpkeepOutcome.VOID
            entry: dict[str, Any] = {"id": commit.ids.snapshot_id, "replaces": {}, "details": {}}
            for files, file in merged:
                entry["replaces"] |= {files[0]: file, **dict.fromkeys(files[1:])}
                entry["details"][file] = live[files[0]]
            entry["files"] = [file for _, file in merged]
            state["log"].append(entry)
        self.at_upkeep("committed")
        return UpkeepOutcome.LANDED

    def close(self) -> None:
        """See Protocol."""

    def compact_elsewhere(self, path: TablePath) -> None:
        """Merge all files of a table of one layout into one, as another engine would, which knows no stamps."""
        with self._state(path) as state:
            files = [file for file, _ in _live(state)]
            batches = [batch for file in files for batch in pa.ipc.open_file(file).read_all().to_batches()]
            merged = str(write_file(self.root / str(path) / "elsewhere", "merged", batches))
            entry = {"id": secrets.randbits(60), "files": [merged]}
            state["log"].append(entry | {"replaces": {files[0]: merged, **dict.fromkeys(files[1:])}})

    def commit_elsewhere(self, path: TablePath, offsets: Mapping[TableBucket, int] | str) -> int:
        """Commit offsets as another tiering service would, which knows neither stamps nor rounds; return the snapshot.

        Offsets are by bucket, or the path of the source's offsets file that holds them.
        """
        named = {"offsets": None, "path": offsets} if isinstance(offsets, str) else {"offsets": _plain(offsets)}
        with self._state(path) as state:
            snapshot_id = secrets.randbits(60)
            state["log"].append({"id": snapshot_id, "path": None, **named})
        return snapshot_id

    def read(self, path: TablePath, key: str | None = None) -> list[dict[str, Any]]:
        """Return the table's rows; with `key`, folded to the last change of each key in each partition."""
        with self._state(path) as state:
            files = _live(state)
        rows = [(detail, row) for file, detail in files for row in pa.ipc.open_file(file).read_all().to_pylist()]
        if key is None:
            return [row for _, row in rows]
        live: dict[Any, dict[str, dict[str, Any]]] = {}
        for detail, row in rows:
            if row[CHANGE_COLUMN] != Change.UPDATE_BEFORE:
                # A writer of one layout replaces rows of its own partition, and those of all earlier layouts.
                same = {at: one for at, one in live.get(row[key], {}).items() if _layout_of(at) == _layout_of(detail)}
                live[row[key]] = same | {detail: row}
        folded = (row for found in live.values() for row in found.values())
        return [row for row in folded if row[CHANGE_COLUMN] != Change.DELETE]

    def files_on_disk(self, path: TablePath) -> set[str]:
        """Return every data file of a table, committed or not."""
        return {str(file) for file in (self.root / str(path)).rglob("*.arrow")}

    def _head(self, path: TablePath) -> LakeHead:
        with self._state(path) as state:
            log = state["log"]
            commit = next((_commit(entry) for entry in reversed(log) if "offsets" in entry), None)
            own = next((_commit(entry) for entry in reversed(log) if "round" in entry), None)
            last = log[-1]["id"] if log else None
            files = len(_live(state))
            columns = tuple(state.get("columns", ()))
            head = LakeHead(path, state["table_id"], str(self.root), last, _stamp(state), commit, own, files, columns)
            return replace(head, target_file_bytes=self.target_bytes or None)

    def _file(self, path: TablePath) -> Path:
        return self.root / f"{path}.json"

    @contextmanager
    def _state(self, path: TablePath, *, create: bool = False) -> Iterator[dict[str, Any]]:
        with _LOCK:
            file = self._file(path)
            if not create and not file.exists():
                message = f"{path}: the lake has no such table"
                raise TableGoneError(message)
            state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"log": []}
            yield state
            self.root.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(state), encoding="utf-8")


class FolderWriter:
    """See `lakeward.ports.LakeWriter`."""

    def __init__(
        self, folder: Path, stem: str, target_bytes: int, before: tuple[LakeFile, ...], detail: bytes = b""
    ) -> None:
        """Keep where to write, and what another writer had closed before."""
        self._detail = detail
        self._folder = folder
        self._stem = stem.replace("/", "_")
        self._target_bytes = target_bytes
        self._before = before
        self._batches: list[pa.RecordBatch] = []
        self._closed: list[LakeFile] = []
        self._rolled = 0

    def write(self, batch: SourceBatch) -> None:
        """See Protocol. What is no value of its type is refused with Arrow's own error."""
        batch.records.validate(full=True)
        self._batches.append(batch.records)
        if self._target_bytes and self._open_bytes >= self._target_bytes:
            self._close_file()

    @property
    def all_rows_flushed(self) -> bool:
        """See Protocol."""
        return not self._batches

    def roll(self) -> tuple[LakeFile, ...]:
        """See Protocol."""
        if 2 * self._open_bytes >= self._target_bytes:
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
            Path(file.path).unlink(missing_ok=True)

    @property
    def _open_bytes(self) -> int:
        return sum(batch.nbytes for batch in self._batches)

    def _close_file(self) -> None:
        if not self._batches:
            return
        file = write_file(self._folder, self._stem, self._batches)
        rows = sum(batch.num_rows for batch in self._batches)
        self._closed.append(LakeFile(str(file), "data", rows, file.stat().st_size, self._detail))
        self._batches.clear()

    @property
    def left_out(self) -> int:
        """See Protocol; it writes every record."""
        return 0

    @property
    def timings_s(self) -> dict[str, float]:
        """See Protocol."""
        return {}


def write_file(folder: Path, stem: str, batches: Sequence[pa.RecordBatch]) -> Path:
    """Write a data file, whose name is new and begins with `stem`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{stem}-{secrets.token_hex(4)}.arrow"
    with pa.ipc.new_file(str(file), batches[0].schema) as out:
        for batch in batches:
            out.write_batch(batch)
    return file


def _live(state: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the files that hold the table's rows, each with its detail, in the order of their rows."""
    live: dict[str, str] = {}
    for entry in state["log"]:
        details = entry.get("details", {})
        if entry.get("rewritten"):
            live.clear()
        if (replaces := entry.get("replaces")) is None:
            live |= {file: details.get(file, "") for file in entry.get("files", ())}
            continue
        places = [(replaces.get(file, file), detail) for file, detail in live.items()]
        live = {file: details.get(file, detail) for file, detail in places if file is not None}
    return list(live.items())


def _merge_task(number: int, folder: str, files: Sequence[str]) -> UpkeepTask:
    size = sum(Path(file).stat().st_size for file in files)
    return UpkeepTask(number, len(files), size, json.dumps([folder, files]).encode())


def _stamp(state: dict[str, Any]) -> Incarnation | None:
    return next((Incarnation.parse(entry["stamp"]) for entry in reversed(state["log"]) if "stamp" in entry), None)


def _refuse_overtaken(state: dict[str, Any], path: TablePath, incarnation: Incarnation) -> None:
    opened_by = Incarnation.parse(state["opened_by"]) if "opened_by" in state else None
    for found in (_stamp(state), opened_by):
        if found is not None and found.succeeds(incarnation):
            message = f"{path}: taken over by {found}"
            raise FencedError(message, str(found))


def _check(state: dict[str, Any], request: CommitRequest) -> None:
    stamp = _stamp(state)
    if stamp != request.incarnation:
        message = f"{request.path}: expected the stamp {request.incarnation}, found {stamp}"
        raise FencedError(message, str(stamp))
    base = next((entry["id"] for entry in reversed(state["log"]) if "offsets" in entry), None)
    if base != request.base_commit:
        message = f"{request.path}: expected base commit {request.base_commit}, found {base}"
        raise FencedError(message)


def _entry(request: CommitRequest) -> dict[str, Any]:
    return {
        "id": request.ids.snapshot_id,
        "stamp": str(request.incarnation),
        "round": request.round_id.name,
        "step": request.step,
        "offsets": _plain(request.offsets),
        "path": request.source_path,
        "complete_ms": request.complete_ms,
        "files": [file.path for file in request.files],
        "details": {file.path: file.detail.decode() for file in request.files if file.detail},
    }


def _commit(entry: dict[str, Any]) -> OffsetCommit:
    rows = entry["offsets"]
    offsets = None if rows is None else {TableBucket(*bucket): offset for *bucket, offset in rows}
    stamp = Incarnation.parse(entry["stamp"]) if "stamp" in entry else None
    said, complete_ms = entry.get("round"), entry.get("complete_ms")
    return OffsetCommit(entry["id"], offsets, entry["path"], stamp, said, entry.get("step"), 0, complete_ms)


def _plain(offsets: Mapping[TableBucket, int]) -> list[list[int | None]]:
    return [[bucket.table_id, bucket.partition_id, bucket.bucket, offset] for bucket, offset in offsets.items()]
