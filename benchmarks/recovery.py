"""What a recovery costs that is checkpointed: the first checkpoint, the drain, and memory, by the size of the state.

python benchmarks/recovery.py [--mib 64 512 1024] [--pairs 2] [--every 1.0] [--open-rows-mib 16] [--write-mib 128]

One subtask, a process of its own, restores channel state of so many MiB (Arrow) that lies in a local store of
checkpoints, spills it, and drains it to a writer that drops its rows, so that nothing else takes time. Half of the
runs, in turn, take a checkpoint every second, beginning when the subtask is ready; the others take none. Printed:
seconds from ready to the first complete checkpoint; seconds of the drain with and without checkpoints (wall and
processor); peak memory: of the process, of what it shares with no file, and in Arrow's buffers. `--open-rows-mib` is
`checkpoint.open_rows`: drained rows wait in memory for a checkpoint up to that, as any others; `--write-mib` is
`lake.write_memory`: rows wait there for a row group. A state smaller than that fills it in part. The process has the
allocator's settings that executors have by default.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from lakeward.clock import SystemClock
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.batches import SYSTEM_FIELDS
from lakeward.model.events import (
    AckCheckpoint,
    CheckpointComplete,
    Close,
    Connected,
    DeclineCheckpoint,
    Deploy,
    DeployExchange,
    DeployRecovery,
    Register,
    TriggerCheckpoint,
)
from lakeward.model.exchange import ChannelState, ExchangeState, Side
from lakeward.model.jobs import JobSpec, SubtaskPlace
from lakeward.model.partitioning import PartitionField
from lakeward.model.tables import BUCKET_COLUMN
from lakeward.model.wire import pack_table
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.exchange.exchange_work import ExchangeWork
from lakeward.subtask.ports import SubtaskPorts
from lakeward.subtask.subtask import Subtask
from lakeward.threads import ThreadExecutor
from lakeward_service_kit.checkpoint_values import reference, round_snapshot
from lakeward_service_kit.exchange import MemoryExchange
from lakeward_testing.folder_lake import FolderLakePlugin, FolderWriter
from lakeward_testing.lake_tables import log_table

if TYPE_CHECKING:
    from lakeward.model.events import AnyEvent, Envelope
    from lakeward.ports import Receiver, SourceBatch

ROWS, PARTITIONS, SEGMENTS = 4096, 16, 16
MIB = 1 << 20
ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.int32()), ("payload", pa.string())])
TABLE = log_table(SCHEMA, lake_partition=(PartitionField("identity", "name"),))
REF = reference()


class DroppingWriter(FolderWriter):
    """Takes rows, and keeps none."""

    def write(self, batch: SourceBatch) -> None:
        """See Protocol."""


class DroppingLake(FolderLakePlugin):
    """A lake whose writers drop their rows."""

    def partition_writer(self, *more: Any) -> FolderWriter:  # noqa: ANN401 - as the Protocol
        """See `PartitioningLakePlugin`."""
        return DroppingWriter(Path(), "x", 1 << 40, more[5])


class NoSource:
    """A source that has no splits."""

    def reader(self, *_: object) -> NoSource:
        """See `SourcePlugin`."""
        return self

    def close(self) -> None:
        """See `lakeward.ports.SourceReader`."""


class Coordinator:
    """The coordinator's end of one subtask: as `Transport`, and as the connection."""

    def __init__(self, deploy: Deploy, store: CheckpointFiles, every_s: float) -> None:
        """Deploy, and take checkpoints every so many seconds; 0: none."""
        self._deploy, self._store, self._every_s = deploy, store, every_s
        self._channel = Channel(ChannelKey("svc/1-1-1", 1, 0, 1), "down")
        self._receiver: Receiver | None = None
        self._number = 0
        self._worker = ThreadExecutor().worker(name="coordinator")
        self.ready = threading.Event()
        self.ready_at = 0.0
        self.took: list[float] = []
        """Seconds from ready to each complete checkpoint."""
        self.refused: list[str] = []

    def connect(self, address: object, first: Envelope, receiver: Receiver, *, after_s: float) -> Coordinator:
        """See `lakeward.ports.Transport`."""
        del address, after_s
        self._receiver = receiver
        self.send(first)
        return self

    def send(self, envelope: Envelope) -> None:
        """See `lakeward.ports.Connection`."""
        self._worker.submit(partial(self._handle, envelope.event))

    def _handle(self, event: AnyEvent) -> None:
        if isinstance(event, Register):
            exchange = self._deploy.exchange
            assert exchange is not None
            exchange = msgspec.structs.replace(exchange, addresses=[event.data_address])
            self._tell(msgspec.structs.replace(self._deploy, exchange=exchange))
        elif isinstance(event, Connected):
            self.ready_at = time.perf_counter()
            self._trigger()
            self.ready.set()
        elif isinstance(event, DeclineCheckpoint):
            self.refused.append(event.reason)
        elif isinstance(event, AckCheckpoint):
            ref = reference(event.checkpoint)
            self._store.complete(ref, round_snapshot(ref), [event.part], None)
            self.took.append(time.perf_counter() - self.ready_at)
            self._tell(CheckpointComplete(checkpoint=event.checkpoint))

    def close(self) -> None:
        """See `lakeward.ports.Connection`."""

    def trigger(self) -> None:
        """Start a checkpoint."""
        self._worker.submit(self._trigger)

    def _trigger(self) -> None:
        if self._every_s:
            self._number += 1
            self._tell(Close(checkpoint=self._number + 1))
            self._tell(TriggerCheckpoint(checkpoint=self._number + 1))

    def _tell(self, event: AnyEvent) -> None:
        assert self._receiver is not None
        self._receiver.on_message(cast("Any", self), self._channel.send(event))


def make(place: Path, mib: int) -> None:
    """Write the state: segments of a channel, as a checkpoint has them."""
    store = CheckpointFiles(SmallFiles(str(place / "state")), SystemClock())
    columns = [
        pa.array(range(ROWS), pa.int64()),
        pa.array(np.arange(ROWS) % PARTITIONS, pa.int32()),
        pa.array([f"{row:06}" * 32 for row in range(ROWS)]),
        *(pa.array([0] * ROWS, one.type) for one in SYSTEM_FIELDS),
        pa.array([0] * ROWS, pa.int32()),
    ]
    schema = pa.schema([*SCHEMA, *SYSTEM_FIELDS, pa.field(BUCKET_COLUMN, pa.int32(), nullable=False)])
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    each = max(1, mib * MIB // SEGMENTS // batch.nbytes)
    segments = [store.write_segment(REF, f"1-0-1-{n}.arrow", repeat(batch, each)) for n in range(SEGMENTS)]
    state = ExchangeState(
        subtask=0, subtasks=1, channels=tuple(ChannelState(0, 0, Side.IN, segment) for segment in segments)
    )
    (place / "restore").write_bytes(msgspec.msgpack.encode([state]))


def run(place: Path, every_s: float, open_rows: int, write: int) -> dict[str, object]:
    """Restore once, in this process."""
    clock = SystemClock()
    store = CheckpointFiles(SmallFiles(str(place / "state")), clock)
    restore = msgspec.msgpack.decode((place / "restore").read_bytes(), type=list[ExchangeState])
    (place / "spill").mkdir(exist_ok=True)
    recovery = DeployRecovery(spill_dirs=[str(place / "spill")], spill_quota_bytes=1 << 40, memory_bytes=32 * MIB)
    exchange = DeployExchange(
        addresses=[], by_bucket=not TABLE.has_primary_key, restore=restore, open_files=64, open_rows_bytes=open_rows,
        aligned_timeout_s=1.0, unaligned=True, recovery=recovery,
    )  # fmt: skip
    deploy = Deploy(
        attempt=1, table=pack_table(TABLE), source="", source_task=b"", lake="", lake_task=b"[]", fence_s=1e9,
        progress_s=1e9, checkpoint_root="there", checkpoint_ref=REF, exchange=exchange, write_memory_bytes=write,
    )  # fmt: skip
    coordinator = Coordinator(deploy, store, every_s)
    parts = SubtaskPorts(
        transport=cast("Any", coordinator),
        executor=ThreadExecutor(),
        clock=clock,
        source=lambda _: cast("Any", NoSource()),
        lake=lambda _: cast("Any", DroppingLake()),
        checkpoints=lambda _: store,
        exchange=MemoryExchange(),
    )
    job = JobSpec(
        "svc/1-1-1", 1, 1, "", "", "", "127.0.0.1", 1, b"s" * 32, 1e9, exchange=True, exchange_host="127.0.0.1"
    )
    subtask = Subtask(SubtaskPlace(job, 0, 0), parts)
    began = time.perf_counter()
    threading.Thread(target=subtask.run, daemon=True).start()
    while not coordinator.ready.wait(0.1):
        if subtask.error is not None:
            raise subtask.error
    at_ready = peak_mib()
    used, due = time.process_time(), coordinator.ready_at + every_s
    work = subtask._exchange  # noqa: SLF001 - its phase is nowhere else before a report
    assert isinstance(work, ExchangeWork)
    anonymous = 0.0
    while work.figures.recovery == "draining":
        time.sleep(0.002)
        anonymous = max(anonymous, anonymous_mib())
        if every_s and time.perf_counter() >= due:
            coordinator.trigger()
            due += every_s
    drained, used = time.perf_counter() - coordinator.ready_at, time.process_time() - used
    while every_s and not coordinator.took:
        time.sleep(0.01)
    segments = place / "state"
    return {
        "read_back_s": coordinator.ready_at - began,
        "drain_s": drained,
        "drain_cpu_s": used,
        "first_s": coordinator.took[0] if coordinator.took else None,
        "checkpoints": len(coordinator.took),
        "refused": coordinator.refused,
        "spill_mib": work.figures.recovery_bytes / MIB,
        "kept_mib": work.figures.kept_spill_bytes / MIB,
        "stored_mib": sum(path.stat().st_size for path in segments.rglob("*") if path.is_file()) / MIB,
        "peak_at_ready_mib": at_ready,
        "peak_mib": peak_mib(),
        "anonymous_mib": anonymous,
        "arrow_mib": (pa.default_memory_pool().max_memory() or 0) / MIB,
    }


def peak_mib() -> float:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def anonymous_mib() -> float:
    """Return the memory that this process has now and shares with no file."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, nargs="+", default=[64, 512, 1024])
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--every", type=float, default=1.0, help="seconds from one checkpoint to the next")
    parser.add_argument("--open-rows-mib", type=int, default=16)
    parser.add_argument("--write-mib", type=int, default=128)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run(Path(options.child), options.every, options.open_rows_mib * MIB, options.write_mib * MIB)))
        return
    for mib in options.mib:
        with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as directory:
            make(Path(directory), mib)
            measure(Path(directory), mib, options)


def measure(place: Path, mib: int, options: argparse.Namespace) -> None:
    """Run pairs of one size in turn, and print."""
    found: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for number in range(options.pairs):
        for taking in (True, False) if number % 2 else (False, True):
            every = str(options.every if taking else 0.0)
            command = [sys.executable, __file__, "--child", str(place), "--every", every]
            command += ["--open-rows-mib", str(options.open_rows_mib), "--write-mib", str(options.write_mib)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True, env=ALLOCATOR | os.environ)
            found[taking].append(json.loads(answer.stdout.splitlines()[-1]))
            print(f"  {mib} MiB, {'checkpoints' if taking else 'none'}: {found[taking][-1]}", flush=True)
    first = [one["first_s"] for one in found[True]]
    print(f"{mib} MiB: first checkpoint {statistics.median(first):.3f} s after ready (goal 1.0), {first}")
    for name in ("drain_s", "drain_cpu_s"):
        ratios = [one[name] / other[name] for one, other in zip(found[True], found[False], strict=True)]
        print(f"  {name} with / without checkpoints: {statistics.median(ratios):.3f} (goal 1.03), {ratios}")
    print(f"  peak memory {statistics.median(one['peak_mib'] for one in found[True]):.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
