"""Subtasks that exchange rows, in one process and on one thread, with the test in the coordinator's place."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.events import (
    DATA_EVENTS,
    AckCheckpoint,
    AnyEvent,
    AssignSplits,
    CheckpointAborted,
    Close,
    Connected,
    DeclineCheckpoint,
    Deploy,
    DeployExchange,
    DeployRecovery,
    Heartbeat,
    NoMoreSplits,
    Register,
    RequestSplit,
    TriggerCheckpoint,
    WriterFinished,
)
from lakeward.model.jobs import JobSpec, SubtaskPlace
from lakeward.model.partitioning import PartitionField
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TableBucket, TableSpec
from lakeward.model.wire import pack_table
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward.storage.spill import LOCAL_DISK
from lakeward.subtask.exchange.exchange_work import ExchangeWork
from lakeward.subtask.exchange.phase import ExchangePhase
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.part_store import CheckpointPart
from lakeward.subtask.ports import LIMITS, OutputLimits, SubtaskPorts
from lakeward.subtask.subtask import Subtask
from lakeward_service_kit.checkpoint_values import reference
from lakeward_service_kit.exchange import MemoryExchange
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLakePlugin, FolderWriter
from lakeward_testing.lake_tables import key_table, log_table, source_batch
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakeward.model.batches import SourceBatch
    from lakeward.model.events import Envelope
    from lakeward.model.exchange import ExchangeState
    from lakeward.model.results import LakeFile
    from lakeward.ports import Address, ExchangeTransport, Receiver, SpillDisk

ROWS, BATCH_ROWS, BUCKETS, PARTITIONS = 300, 20, 4, 16
EVERY = list(range(ROWS * BUCKETS))
REF = reference(0)
LAYOUT = (PartitionField("identity", "name"),)
APPEND = log_table(lake_partition=LAYOUT)
KEYED = key_table(lake_partition=LAYOUT, primary_key=("id", "name"))


class NowWorker:
    """See `lakeward.ports.Worker` and `Running`: does the work when the world is turned."""

    def __init__(self, executor: Executor, name: str) -> None:
        self._executor, self._name = executor, name
        self._stopped = False

    def submit(self, work: Callable[[], None]) -> None:
        self._executor.queue.append((self._name, lambda: None if self._stopped else work()))

    def stop(self, timeout_s: float) -> bool:
        self._stopped = True
        return True

    def join(self, timeout_s: float) -> bool:
        return all(name != self._name for name, _ in self._executor.queue)


@dataclass
class Executor:
    """See `lakeward.ports.Executor`. What the workers named in `held` have to do waits, as behind a call that hangs."""

    queue: list[tuple[str, Callable[[], object]]] = field(default_factory=list)
    held: set[str] = field(default_factory=set)

    def start(self, work: Callable[[], object], *, name: str) -> NowWorker:
        self.queue.append((name, work))
        return NowWorker(self, name)

    def worker(self, *, name: str) -> NowWorker:
        return NowWorker(self, name)

    def turn(self) -> bool:
        """Do one piece of work; return whether there was any."""
        for place, (name, work) in enumerate(self.queue):
            if name not in self.held:
                del self.queue[place]
                work()
                return True
        return False


class Source:
    """A source of `ROWS` rows a bucket: ids that say bucket and offset. `alter` may put something else into a batch."""

    def __init__(self, table: TableSpec) -> None:
        self._table = table
        self.alter: Callable[[int, SourceBatch], SourceBatch] = lambda _bucket, batch: batch

    def reader(self, *_: object) -> Source:
        return self

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        for start in range(split.start, split.stop, BATCH_ROWS):
            stop = min(split.stop, start + BATCH_ROWS)
            first = split.bucket.bucket * ROWS
            rows = [{"id": first + offset, "name": f"p{offset % PARTITIONS}"} for offset in range(start, stop)]
            yield self.alter(split.bucket.bucket, source_batch(self._table.schema, rows, start=start))

    def close(self) -> None:
        return


class WatchedLake(FolderLakePlugin):
    """A lake that counts the rows that each subtask writes. `on_write` is called in the midst of each write."""

    def __init__(self) -> None:
        self.rows: Counter[int] = Counter()
        self.on_write: Callable[[int, bytes], None] = lambda _subtask, _partition: None

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
        writer = super().partition_writer(task, table, partition, name, attempt, before, memory_bytes)
        subtask, write = int(name[1:].partition("-")[0]), writer.write

        def watched(batch: SourceBatch) -> None:
            self.on_write(subtask, partition)
            write(batch)
            self.rows[subtask] += batch.records.num_rows

        writer.write = watched  # type: ignore[method-assign] # of this one alone
        return writer


class Member:
    """A subtask, and its coordinator's end."""

    def __init__(self, world: ExchangeWorld, number: int) -> None:
        self.world, self.number = world, number
        self.sent: list[AnyEvent] = []
        self.receiver: Receiver | None = None
        self._channel = Channel(ChannelKey("svc/1-1-1", 1, number, number + 1 + 10 * world.count), "down")
        self.mailbox, self.executor = Mailbox(world.posted.set), Executor()
        parts = SubtaskPorts(
            transport=cast("Any", self),
            executor=cast("Any", self.executor),
            clock=world.clock,
            source=lambda _: cast("Any", world.source),
            lake=lambda _: cast("Any", world.lake),
            checkpoints=lambda _: world.store,
            exchange=world.exchange,
            exchange_limits=world.limits,
            spill_disk=world.spill_disk,
        )
        host = "127.0.0.1"
        job = JobSpec(
            "svc/1-1-1", 1, world.count, "", "", "", host, 1, b"s" * 32, 1e9, exchange=True, exchange_host=host
        )
        self.subtask = Subtask(SubtaskPlace(job, number, 0), parts, self.mailbox)
        self.subtask.start()

    @property
    def exchange(self) -> ExchangeWork:
        found = self.subtask._exchange
        assert isinstance(found, ExchangeWork)
        return found

    @property
    def parts_to_store(self) -> list[CheckpointPart]:
        assert self.subtask._checkpointing is not None
        return self.subtask._checkpointing.store._waiting

    def connect(self, address: Address, first: Envelope, receiver: Receiver, *, after_s: float) -> Member:
        self.receiver = receiver
        self.send(first)
        return self

    def send(self, envelope: Envelope) -> None:
        self.sent.append(envelope.event)

    def close(self) -> None:
        return

    def tell(self, event: AnyEvent) -> None:
        assert self.receiver is not None
        self.receiver.on_message(cast("Any", self), self._channel.send(event))

    def told(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.sent if isinstance(event, kind)]

    def turn(self) -> bool:
        """Do one item and one piece of work; return whether there was any."""
        item = None if self.subtask.ended else self.mailbox.get(0.0)
        if item is not None:
            self.subtask.turn(item)
        worked = self.executor.turn()
        assert self.subtask.error is None or self.world.may_fail, self.subtask.error
        return item is not None or worked


class ExchangeWorld:
    """All subtasks of a launch. `may_fail`: a subtask may end with an error. `wait`: until all are connected."""

    def __init__(
        self,
        folder: Path,
        table: TableSpec,
        count: int,
        restore: list[ExchangeState] | None = None,
        *,
        transport: ExchangeTransport | None = None,
        aligned_timeout_s: float = 1.0,
        limits: OutputLimits = LIMITS,
        recovery: DeployRecovery | None = None,
        spill_disk: SpillDisk = LOCAL_DISK,
        wait: bool = True,
    ) -> None:
        self.table, self.count, self.clock = table, count, FakeClock()
        self.spill_disk = spill_disk
        self.limits = limits
        self.posted = threading.Event()
        self.may_fail = False
        self.memory = MemoryExchange()
        self.exchange = self.memory if transport is None else transport
        self.source = Source(table)
        self.lake = WatchedLake()
        self.store = CheckpointFiles(SmallFiles(str(folder / "state")), self.clock)
        self.members = [Member(self, number) for number in range(count)]
        addresses = [member.told(Register)[0].data_address for member in self.members]
        exchange = DeployExchange(
            addresses=addresses, by_bucket=not table.has_primary_key, restore=restore or [], open_files=64,
            open_rows_bytes=1 << 30,
            aligned_timeout_s=aligned_timeout_s, unaligned=True, recovery=recovery,
        )  # fmt: skip
        for member in self.members:
            member.tell(
                Deploy(
                    attempt=member.number + 1 + 10 * count, table=pack_table(table), source="", source_task=b"",
                    lake="", lake_task=json.dumps([str(folder / "lake"), 1 << 20]).encode(), fence_s=1e9,
                    progress_s=1e9,
                    checkpoint_root="there", checkpoint_ref=REF, exchange=exchange,
                )
            )  # fmt: skip
        if wait:
            self.connect()

    def connect(self) -> None:
        """Let all work until splits are asked for."""
        self.until(lambda: all(member.told(Connected) for member in self.members))
        assert all(member.told(RequestSplit) for member in self.members)

    def turn(self, most: int = 1_000_000) -> None:
        """Let all do what is there for them."""
        for _ in range(most):
            busy = [member.turn() for member in self.members]
            if not any(busy):
                return

    def until(self, seen: Callable[[], bool]) -> None:
        """Let all work until something is seen; what is under way over a network is waited for."""
        while True:
            self.posted.clear()
            self.turn()
            if seen():
                return
            if self.exchange is self.memory or not self.posted.wait(LIMIT_S):
                message = "nothing more happens"
                raise AssertionError(message)

    def idle(self) -> None:
        """Let time pass in which nothing comes."""
        for member in self.members:
            if not member.subtask.ended:
                member.subtask.turn(None)
        self.turn()

    def assign(self, splits: list[SplitProgress]) -> None:
        for number, split in enumerate(splits):
            self.members[number % self.count].tell(AssignSplits(splits=[split]))

    def checkpoint(self, number: int = 1, *, close_files: bool = False) -> None:
        for member in self.members:
            member.tell(Close(checkpoint=number))
        for member in self.members:
            member.tell(TriggerCheckpoint(checkpoint=number, close_files=close_files))

    def abort(self, number: int = 1) -> None:
        """End a checkpoint that will not be, at all subtasks."""
        for member in self.members:
            member.tell(CheckpointAborted(checkpoint=number))

    def acked(self, number: int) -> list[AckCheckpoint]:
        """What the subtasks stored of a checkpoint."""
        return [ack for member in self.members for ack in member.told(AckCheckpoint) if ack.checkpoint == number]

    def acks(self, number: int = 1) -> list[AckCheckpoint]:
        """The whole of a checkpoint; none of any was declined."""
        assert [member.told(DeclineCheckpoint) for member in self.members] == [[]] * self.count
        found = self.acked(number)
        assert len(found) == self.count
        return found

    def finish(self) -> list[ExchangeState]:
        """End the round; return what all writers have."""
        self.turn()
        self.idle()
        for member in self.members:
            member.tell(NoMoreSplits())
        self.until(lambda: all(member.told(WriterFinished) for member in self.members))
        states = [member.told(WriterFinished)[0].state for member in self.members]
        for member in self.members:
            member.tell(Heartbeat(acked=sum(isinstance(event, DATA_EVENTS) for event in member.sent)))
        self.until(lambda: all(member.exchange.phase is ExchangePhase.DONE for member in self.members))
        self.idle()
        assert [member.subtask.outcome for member in self.members] == ["done"] * self.count
        return states

    def close(self) -> None:
        """Free everything."""
        for member in self.members:
            member.subtask.close()


def splits() -> list[SplitProgress]:
    """A split for each bucket."""
    return [SplitProgress.beginning(LogSplit(f"s{b}", TableBucket(7, None, b), (), 0, ROWS)) for b in range(BUCKETS)]


def rows_of(states: list[ExchangeState]) -> list[int]:
    """The ids in all closed files."""
    files = [file for state in states for file in state.files]
    return sorted(row["id"] for file in files for row in pa.ipc.open_file(file.path).read_all().to_pylist())
