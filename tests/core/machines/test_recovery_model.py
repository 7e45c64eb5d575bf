"""The recovery's machine between a disk, a writer and a coordinator; every interleaving of a small one; its mutants.

Two threads: the worker that reads from disk, and the mailbox, which does everything else, a step at a time. Each
snapshot is compared with what was restored: what the writer has, what memory holds and what the spill has left are all
rows, once, in order.
"""

from __future__ import annotations

import pickle
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as play

from lakeward.errors import IllegalEventError
from lakeward.machines.recovery import (
    AcceptCheckpoints,
    CheckpointRequested,
    ContentRequested,
    DeliverPiece,
    DropSnapshot,
    FailMarkerMissing,
    FinishRecovery,
    KeepPieces,
    PieceRead,
    PieceRequested,
    ProducersConnected,
    ReadPiece,
    Recovery,
    RecoveryCommand,
    RecoveryEvent,
    RecoveryPhase,
    RefuseCheckpoint,
    RowsSpilled,
    SnapshotAborted,
    SnapshotSpill,
    SnapshotStarted,
    SpillEnded,
    WakeWriter,
    WritePiece,
)
from lakeward_mutants import recovery as mutants

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

Row = tuple[int, int]
"""Channel, and number in all."""


@dataclass
class World:
    """What is around the machine."""

    machine: Recovery
    spill: list[Row]
    memory_bytes: int
    committed: int = 0
    read: int = 0
    asked: bool = False
    """The worker is to read."""
    posted: deque[Row | None] = field(default_factory=deque)
    """What the worker has read and the mailbox has not taken; None: the end."""
    memory: deque[Row] = field(default_factory=deque)
    awake: bool = False
    """The writer looks whether there is something."""
    written: list[Row] = field(default_factory=list)
    spilled: bool = False
    connected: bool = False
    accepts: bool = False
    finished: bool = False
    checkpoint: int = 0
    snapshots: dict[int, int] = field(default_factory=dict)
    """By checkpoint: from where on the spill is kept for it."""
    started: int = 0
    cut: list[Row] = field(default_factory=list)
    """What the writer had when the snapshot began."""
    taken: int = 0
    """Checkpoints whose content was right."""

    def step(self, event: RecoveryEvent) -> list[RecoveryCommand]:
        commands = list(self.machine.step(event))
        for command in commands:
            self.execute(command)
        return commands

    def execute(self, command: RecoveryCommand) -> None:
        match command:
            case AcceptCheckpoints():
                assert not self.accepts, "accepted twice"
                self.accepts = True
            case ReadPiece():
                assert not self.asked, "two reads at a time"
                assert sum(1 for _ in self.memory) < self.memory_bytes, "read beyond the memory"
                self.asked = True
            case DeliverPiece():
                row = self.posted.popleft()
                assert row is not None
                self.memory.append(row)
                self.committed += 1
            case WakeWriter():
                self.awake = True
            case WritePiece():
                row = self.memory.popleft()
                assert row[0] == command.channel, "another channel's"
                assert self.connected, "written before all are connected"
                self.written.append(row)
            case FinishRecovery():
                assert not self.finished, "finished twice"
                assert self.written == self.spill, "live rows before restored ones"
                self.finished = True
            case _:
                self.execute_for_checkpoint(command)

    def execute_for_checkpoint(self, command: RecoveryCommand) -> None:
        match command:
            case RefuseCheckpoint():
                assert not self.accepts, "refused though it accepts"
            case SnapshotSpill():
                self.snapshots[command.checkpoint] = self.committed
            case DropSnapshot():
                del self.snapshots[command.checkpoint]
            case FailMarkerMissing():
                pytest.fail(f"no marker in channel {command.channel}")
            case _:
                assert isinstance(command, KeepPieces)

    # --- what can happen: the worker, then the mailbox ---

    def worker_reads(self) -> None:
        self.asked = False
        self.posted.append(self.spill[self.read] if self.read < len(self.spill) else None)
        self.read += 1

    def mailbox_takes(self) -> None:
        row = self.posted[0]
        if row is None:
            self.posted.popleft()
            self.step(SpillEnded())
        else:
            self.step(PieceRead(row[0], 1))

    def writer_takes(self) -> None:
        self.awake = False
        if self.machine.can_take:
            self.step(PieceRequested())
            self.awake = self.awake or self.machine.can_take

    def spills(self) -> None:
        self.spilled = True
        self.step(RowsSpilled())

    def connects(self) -> None:
        self.connected = True
        self.step(ProducersConnected())

    def starts(self) -> None:
        """A checkpoint is triggered, and its snapshot begins."""
        self.checkpoint += 1
        self.step(CheckpointRequested(self.checkpoint))
        if self.accepts:
            self.step(SnapshotStarted(self.checkpoint))
            self.started, self.cut = self.checkpoint, [*self.written]

    def content(self) -> None:
        """Its content is wanted: compare it with all that was restored."""
        checkpoint, self.started = self.started, 0
        kept = [one for one in self.step(ContentRequested(checkpoint)) if isinstance(one, KeepPieces)]
        channels = [one.channel for one in kept]
        assert channels == sorted(set(channels)), "kept twice"
        memory = [*self.memory]
        held: list[Row] = []
        for one in kept:
            held += [row for row in memory if row[0] == one.channel][: one.count]
        if not self.finished:
            assert checkpoint in self.snapshots, "the spill is not kept"
        rest = self.spill[self.snapshots.pop(checkpoint, len(self.spill)) :]
        assert [*self.cut, *held, *rest] == self.spill
        self.taken += 1

    def aborts(self) -> None:
        self.started = 0
        self.step(SnapshotAborted(self.checkpoint))
        assert not self.snapshots, "kept for what was aborted"

    def enabled(self, checkpoints: int) -> Iterator[str]:
        """Yield what can happen now."""
        if self.asked:
            yield "worker_reads"
        if self.posted:
            yield "mailbox_takes"
        if not self.spilled:
            yield "spills"
        if not self.connected:
            yield "connects"
        if self.started:
            yield "content"
            yield "aborts"
        elif self.awake:
            yield "writer_takes"
        if self.checkpoint < checkpoints:
            yield "starts"

    def settle(self) -> None:
        """Let all happen that has to, without a checkpoint."""
        for _ in range(10_000):
            names = [name for name in self.enabled(0) if name != "aborts"]
            if not names:
                break
            getattr(self, names[0])()
        assert self.finished, "it stands still"
        assert self.machine.phase is RecoveryPhase.NONE
        assert self.written == self.spill
        assert not self.memory
        assert not self.snapshots


def world(kind: type[Recovery], rows: list[int], channels: int, memory_bytes: int) -> World:
    spill = [(channel, number) for number, channel in enumerate(rows)]
    return World(kind(channels, memory_bytes=memory_bytes), spill, memory_bytes)


def copied(saved: bytes) -> World:
    found: World = pickle.loads(saved)  # noqa: S301 - our own bytes
    return found


def explore(kind: type[Recovery], rows: list[int], channels: int, memory_bytes: int, checkpoints: int) -> set[str]:
    """Play every interleaving; return of each snapshot how much was written, was in memory, and was committed."""
    first = pickle.dumps(world(kind, rows, channels, memory_bytes))  # copies from it are quicker than with `deepcopy`
    waiting, seen, cuts = [first], {first}, set[str]()
    while waiting:
        before = waiting.pop()
        names = list(copied(before).enabled(checkpoints))
        if not names:
            copied(before).settle()
        for name in names:
            after = copied(before)
            getattr(after, name)()
            if name == "content":
                cuts.add(f"{len(after.written)} {len(after.memory)} {after.committed}")
            saved = pickle.dumps(after)
            if saved not in seen:
                seen.add(saved)
                waiting.append(saved)
    return cuts


SMALL = [([0, 2, 2], 3, 1, 2), ([0, 2, 2], 3, 2, 2), ([], 2, 1, 2), ([], 0, 1, 1), ([1, 1, 1, 1], 2, 3, 1)]
"""Rows by channel, channels (some have none), memory, checkpoints."""


def explore_all(kind: type[Recovery]) -> None:
    for rows, channels, memory, checkpoints in SMALL:
        explore(kind, rows, channels, memory, checkpoints)


@pytest.mark.parametrize(("rows", "channels", "memory", "checkpoints"), SMALL)
def test_63_every_interleaving_of_drain_and_snapshot_holds_each_row_once(
    rows: list[int], channels: int, memory: int, checkpoints: int
) -> None:
    cuts = explore(Recovery, rows, channels, memory, checkpoints)
    splits = {f"{written} {held} {written + held}" for written in range(len(rows) + 1) for held in range(memory + 1)}
    assert cuts == {cut for cut in splits if int(cut.split()[2]) <= len(rows)}


class Model(RuleBasedStateMachine):
    """The same with larger ones, and restarts from what a snapshot held."""

    kind: type[Recovery] = Recovery

    @initialize(rows=st.lists(st.integers(0, 5), max_size=20), more=st.integers(0, 3), memory=st.integers(1, 4))
    def begin(self, rows: list[int], more: int, memory: int) -> None:
        self.world = world(self.kind, sorted(rows), max(rows, default=-1) + 1 + more, memory)

    @rule(choices=st.lists(st.integers(0, 20), min_size=1, max_size=6))
    def goes_on(self, choices: list[int]) -> None:
        for choice in choices:
            names = [name for name in self.world.enabled(0) if name != "aborts"]
            if names:
                getattr(self.world, names[choice % len(names)])()

    @rule()
    def starts(self) -> None:
        self.world.starts()

    @precondition(lambda self: hasattr(self, "world") and self.world.started)
    @rule(abort=st.booleans())
    def ends(self, *, abort: bool) -> None:
        if abort:
            self.world.aborts()
        else:
            self.world.content()

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "world"):
            assert len(self.world.memory) <= self.world.memory_bytes

    def teardown(self) -> None:
        if hasattr(self, "world"):
            if self.world.started:
                self.world.content()
            self.world.settle()


Model.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestModel = Model.TestCase
MUTANTS = [
    kind
    for kind in vars(mutants).values()
    if isinstance(kind, type) and issubclass(kind, Recovery) and kind is not Recovery
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda kind: kind.__name__)
@pytest.mark.mutant
def test_the_enumeration_finds_each_known_bug(mutant: type[Recovery]) -> None:
    with pytest.raises((AssertionError, IllegalEventError, KeyError, pytest.fail.Exception)):
        explore_all(mutant)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda kind: kind.__name__)
@pytest.mark.mutant
def test_the_model_finds_each_known_bug(mutant: type[Recovery]) -> None:
    with pytest.raises((AssertionError, IllegalEventError, KeyError, pytest.fail.Exception)):
        play(
            type("Wrong", (Model,), {"kind": mutant}),
            settings=settings(
                max_examples=1000,
                stateful_step_count=40,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
