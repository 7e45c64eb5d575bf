"""Anything that can happen to a world, in any order."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lakeward.machines.checkpoints.messages import LaunchEnded
from lakeward.model.events import (
    DeclineCheckpoint,
)
from lakeward_cuts.process import SPLITS
from lakeward_cuts.world import World

subtasks = st.integers(0, 2)


class Game(RuleBasedStateMachine):
    """Anything that can happen, in any order."""

    world: World
    kind: type[World] = World

    @initialize()
    def start(self) -> None:
        self.world = self.kind()
        self.world.register(0)
        self.world.register(1)

    @rule(subtask=subtasks)
    def register(self, subtask: int) -> None:
        """A new one, or a second one of the same subtask."""
        if len(self.world.finished) < len(SPLITS):
            self.world.register(subtask)

    @rule(subtask=subtasks, count=st.integers(1, 5))
    def up(self, subtask: int, count: int) -> None:
        for _ in range(count):
            if subtask in self.world.peers:
                self.world.deliver_up(subtask)

    @rule(subtask=subtasks, count=st.integers(1, 5))
    def down(self, subtask: int, count: int) -> None:
        for _ in range(count):
            if subtask in self.world.peers:
                self.world.deliver_down(subtask)

    @rule(subtask=subtasks)
    def heartbeat(self, subtask: int) -> None:
        if subtask in self.world.peers:
            self.world.heartbeat(subtask)

    @rule(subtask=subtasks, finish=st.booleans())
    def work(self, subtask: int, finish: bool) -> None:
        peer = self.world.peers.get(subtask)
        process = peer.process if peer is not None else None
        if process is None or process.done_sent:
            return
        if finish and process.work:
            process.finish()
        elif not process.asking:
            process.request()

    @rule(subtask=subtasks, ok=st.sampled_from([True, True, True, False]))
    def store_part(self, subtask: int, ok: bool) -> None:
        peer = self.world.peers.get(subtask)
        if peer is not None and peer.process is not None and peer.process.writing:
            if ok:
                peer.process.stored()
            else:
                number, _ = peer.process.writing.pop(0)
                peer.process.send(DeclineCheckpoint(checkpoint=number, reason="full"))

    @rule(rounds=st.integers(1, 4))
    def go_well(self, rounds: int) -> None:
        """A while without faults, so that checkpoints complete."""
        for _ in range(rounds):
            self.world.turn(checkpoints=True)
            self.world.check()

    @rule(subtask=subtasks, then=st.sampled_from(["nothing", "register", "crash", "break", "work", "well"]))
    def checkpoint(self, subtask: int, then: str) -> None:
        """A checkpoint starts, and something happens to a subtask in the middle of it."""
        self.world.start_checkpoint()
        if then == "register":
            self.register(subtask)
        elif then == "crash":
            self.crash(subtask)
        elif then == "break":
            self.down(subtask, 5)
            self.break_connection(subtask, overtaking=True)
        elif then == "work":
            self.down(subtask, 5)
            self.work(subtask, finish=False)
            self.work(subtask, finish=True)
        elif then == "well":
            self.go_well(1)

    @rule(seconds=st.integers(1, 4))
    def tick(self, seconds: int) -> None:
        self.world.tick(seconds)

    @rule(ok=st.sampled_from([True, True, False]))
    def store(self, ok: bool) -> None:
        if self.world.storing is not None:
            self.world.settle_store(ok=ok)

    @rule(subtask=subtasks, overtaking=st.booleans())
    def break_connection(self, subtask: int, overtaking: bool) -> None:
        if subtask in self.world.peers:
            self.world.break_connection(subtask, overtaking=overtaking)

    @rule(subtask=subtasks)
    def crash(self, subtask: int) -> None:
        if subtask in self.world.peers:
            self.world.crash(subtask)

    @precondition(lambda self: self.world.late)
    @rule()
    def receive_late(self) -> None:
        self.world.receive_late()

    @rule()
    def end_launch(self) -> None:
        self.world.step(LaunchEnded(now=self.world.now))

    @rule()
    def restore(self) -> None:
        """The coordinator dies, with all subtasks; another one is restored."""
        self.world.restore()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world") and not self.world.broken:
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


QUICK = settings(
    max_examples=150,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
)
