"""Checkpoints as commands show them: a line for each, and the content of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.model.checkpoints import CheckpointInfo, CheckpointState
from lakeward.model.exchange import Side
from lakeward.model.splits import LogSplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.model.checkpoints import (
        BlockedEvent,
        Checkpoint,
        LeaseCopy,
        SplitProgress,
        SubtaskSnapshot,
    )
    from lakeward.model.exchange import ExchangeState
    from lakeward.model.results import LakeFile

COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """One checkpoint. `age_s` counts from its completion, or else from its newest file; `table` may be unknown."""

    id: str
    table: str | None
    table_id: int
    epoch: int
    number: int
    incarnation: str
    state: str
    message: str
    age_s: float
    completed_ms: int | None
    size_bytes: int
    parts: int


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """A split in progress. `position` and `end` are offsets of a log, `position` rows of a snapshot."""

    holder: str
    split: str
    kind: str
    bucket: str
    position: int
    end: int | None
    rows: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BlockedLine:
    """The finish of a split, held by a closed gateway. `origin` is job attempt, subtask, task attempt, sequence."""

    holder: str
    origin: str
    split: str
    end_offset: int
    rows: int
    files: int


@dataclass(frozen=True, slots=True)
class FileLine:
    """A closed lake file that the checkpoint names. `committed`: a step of the round has committed it.

    `split` is empty with an exchange: the file holds rows of many splits.
    """

    holder: str
    split: str
    path: str
    kind: str
    rows: int
    size_bytes: int
    committed: bool


@dataclass(frozen=True, slots=True)
class ExchangeLine:
    """What a subtask of an exchange holds. `rows` were taken by its writer; `left_out` of them are in no data file.

    `open_rows` are in files that were open, `in_rows` had been received, `out_rows` waited to be sent.
    """

    holder: str
    kind: str
    rows: int
    left_out: int
    files: int
    open_partitions: int
    open_rows: int
    open_bytes: int
    in_rows: int
    out_rows: int
    channel_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointLease:
    """The lease in a checkpoint. `state_bytes` is the size of its backend's state, None where it has none."""

    backend: str
    lease_id: str
    state_bytes: int | None


@dataclass(frozen=True, slots=True)
class CheckpointContent:
    """The content of a checkpoint, without the opaque bytes of plugins."""

    checkpoint: CheckpointLine
    round: str
    step: int
    base_snapshot: int | None
    base_commit: int | None
    splits: int
    finished: int
    progress: tuple[ProgressLine, ...]
    blocked: tuple[BlockedLine, ...]
    files: tuple[FileLine, ...]
    lease: CheckpointLease | None
    layout: tuple[str, ...] = ()
    exchange: tuple[ExchangeLine, ...] = ()


def checkpoint_line(info: CheckpointInfo, now_ms: int) -> CheckpointLine:
    """Describe a checkpoint from a list; `now_ms` is in milliseconds since 1970."""
    ref = info.ref
    since = info.written_ms if info.completed_ms is None else info.completed_ms
    return CheckpointLine(
        id=str(ref),
        table=None if info.path is None else str(info.path),
        table_id=ref.table_id,
        epoch=ref.epoch,
        number=ref.number,
        incarnation=ref.incarnation,
        state=info.state.value,
        message=info.message,
        age_s=max(0.0, (now_ms - since) / 1000),
        completed_ms=info.completed_ms,
        size_bytes=info.size_bytes,
        parts=info.parts,
    )


def checkpoint_content(checkpoint: Checkpoint, now_ms: int) -> CheckpointContent:
    """Describe the content of a checkpoint; `now_ms` is in milliseconds since 1970."""
    ours = checkpoint.coordinator
    info = CheckpointInfo(
        checkpoint.ref,
        CheckpointState.COMPLETE,
        message="",
        written_ms=checkpoint.completed_ms,
        size_bytes=checkpoint.size_bytes,
        completed_ms=checkpoint.completed_ms,
        path=ours.path,
        parts=len(checkpoint.subtasks),
    )
    held = list(_held(checkpoint))
    blocked = [(_holder(subtask), event) for subtask in checkpoint.subtasks for event in subtask.blocked]
    return CheckpointContent(
        checkpoint=checkpoint_line(info, now_ms),
        round=ours.round_id.name,
        step=ours.step,
        base_snapshot=ours.base_snapshot,
        base_commit=ours.base_commit,
        splits=len(ours.splits),
        finished=len(ours.finished),
        progress=tuple(_progress(holder, one) for holder, one in held),
        blocked=tuple(_blocked(holder, event) for holder, event in blocked),
        files=tuple(_files(checkpoint, held, blocked)),
        lease=None if checkpoint.lease is None else _lease(checkpoint.lease),
        layout=ours.layout,
        exchange=tuple(
            _exchange(_holder(subtask), subtask.exchange)
            for subtask in sorted(checkpoint.subtasks, key=lambda one: one.subtask)
            if subtask.exchange is not None
        ),
    )


def _exchange(holder: str, state: ExchangeState) -> ExchangeLine:
    opened = [segment for rows in state.open_rows for segment in rows.segments]
    received, waiting = ([one.segment for one in state.channels if one.side is side] for side in (Side.IN, Side.OUT))
    return ExchangeLine(
        holder=holder,
        kind="unaligned" if state.unaligned else "aligned",
        rows=state.rows,
        left_out=state.left_out,
        files=len(state.files),
        open_partitions=len(state.open_rows),
        open_rows=sum(segment.held_rows for segment in opened),
        open_bytes=sum(segment.held_bytes for segment in opened),
        in_rows=sum(segment.held_rows for segment in received),
        out_rows=sum(segment.held_rows for segment in waiting),
        channel_bytes=sum(segment.held_bytes for segment in (*received, *waiting)),
    )


def _holder(subtask: SubtaskSnapshot) -> str:
    return f"subtask {subtask.subtask}, attempt {subtask.task_attempt}"


def _held(checkpoint: Checkpoint) -> Iterator[tuple[str, SplitProgress]]:
    for one in checkpoint.coordinator.progress:
        yield COORDINATOR, one
    for subtask in checkpoint.subtasks:
        for one in subtask.progress:
            yield _holder(subtask), one


def _progress(holder: str, one: SplitProgress) -> ProgressLine:
    split = one.split
    is_log = isinstance(split, LogSplit)
    return ProgressLine(
        holder=holder,
        split=split.split_id,
        kind="log" if is_log else "snapshot",
        bucket=str(split.bucket),
        position=one.position,
        end=split.stop if isinstance(split, LogSplit) else None,
        rows=one.rows,
        files=len(one.files),
        size_bytes=sum(file.size_bytes for file in one.files),
    )


def _blocked(holder: str, blocked: BlockedEvent) -> BlockedLine:
    origin, result = blocked.origin, blocked.result
    numbers = f"{origin.job_attempt}/{origin.subtask}/{origin.task_attempt}/{origin.sequence}"
    return BlockedLine(holder, numbers, result.split_id, result.end_offset, result.rows, len(result.files))


def _lease(lease: LeaseCopy) -> CheckpointLease:
    return CheckpointLease(lease.backend, lease.lease_id, None if lease.state is None else len(lease.state))


def _files(
    checkpoint: Checkpoint, held: Iterable[tuple[str, SplitProgress]], blocked: Iterable[tuple[str, BlockedEvent]]
) -> Iterator[FileLine]:
    committed = frozenset(checkpoint.coordinator.committed)

    def lines(holder: str, split: str, files: Iterable[LakeFile]) -> Iterator[FileLine]:
        for file in files:
            yield FileLine(
                holder, split, file.path, file.kind, file.rows, file.size_bytes, committed=file.path in committed
            )

    for result in checkpoint.coordinator.finished:
        yield from lines(COORDINATOR, result.split_id, result.files)
    for holder, one in held:
        yield from lines(holder, one.split.split_id, one.files)
    for subtask in checkpoint.subtasks:
        if subtask.exchange is not None:
            yield from lines(_holder(subtask), "", subtask.exchange.files)
    for holder, event in blocked:
        yield from lines(holder, event.result.split_id, event.result.files)
