"""What our rounds are compared with: plain pyfluss and plain pyarrow in processes of their own, no lake, no commit."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fluss_rows import SCHEMA, rows

GROUP = 1 << 19
"""Rows of a row group."""
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Spent:
    """What something took: seconds of the clock, and of all processors together."""

    seconds: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s, {self.cpu:.2f} CPU-s"


@dataclass(frozen=True, slots=True)
class Target:
    """A Parquet file to write."""

    file: str
    level: int

    def writer(self) -> pq.ParquetWriter:
        """Open it."""
        return pq.ParquetWriter(self.file, SCHEMA, compression="zstd", compression_level=self.level)


class Starter:
    """Lets all processes begin at once, and says when all are done."""

    def __init__(self, processes: int) -> None:
        """Be used by so many processes beside our own."""
        self._barrier = _SPAWN.Barrier(processes + 1)
        self._cpu = _SPAWN.SimpleQueue()
        self._began = 0.0
        self._processes = processes

    def begin(self) -> None:
        """Wait until all are ready."""
        self._barrier.wait()
        self._began = time.process_time()

    def done(self) -> None:
        """Wait until all are done; what this process took is told."""
        self._cpu.put(time.process_time() - self._began)
        self._barrier.wait()

    def watch(self) -> Spent:
        """Wait, in the process that started the others, from the beginning to the end."""
        self._barrier.wait()
        started = time.perf_counter()
        cpu = sum(self._cpu.get() for _ in range(self._processes))
        self._barrier.wait()
        return Spent(time.perf_counter() - started, cpu)


def run_parallel(call: Callable[..., None], arguments: list[tuple[object, ...]]) -> Spent:
    """Run a call in a process for each of these arguments; it is given a `Starter` before them."""
    starter = Starter(len(arguments))
    processes = [_SPAWN.Process(target=call, args=(starter, *each)) for each in arguments]
    for process in processes:
        process.start()
    spent = starter.watch()
    for process in processes:
        process.join()
    return spent


def scan_and_write(bootstrap: str, name: str, ends: Mapping[int, int], place: Path, level: int) -> Spent:
    """Read a log table with pyfluss and write it with pyarrow, two processes that have every other bucket each.

    Args:
        bootstrap: of the cluster.
        name: the table.
        ends: end offset of each bucket.
        place: directory of the Parquet files; made.
        level: of zstd.
    """
    place.mkdir()
    halves = [{bucket: end for bucket, end in ends.items() if bucket % 2 == half} for half in (0, 1)]
    targets = [Target(f"{place}/{number}.parquet", level) for number in (0, 1)]
    return run_parallel(_scan, [(bootstrap, name, *each) for each in zip(halves, targets, strict=True)])


def _scan(starter: Starter, bootstrap: str, name: str, ends: Mapping[int, int], target: Target) -> None:
    asyncio.run(_scan_share(starter, bootstrap, name, ends, target))
    os._exit(0)  # pyfluss may abort at the interpreter's end


async def _scan_share(starter: Starter, bootstrap: str, name: str, ends: Mapping[int, int], target: Target) -> None:
    import fluss  # noqa: PLC0415 - in this process alone

    connection = await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": bootstrap.partition(",")[0]}))
    table = await connection.get_table(fluss.TablePath(*name.split(".")))
    scanner = await table.new_scan().create_record_batch_log_scanner()
    pending: list[Any] = []
    left, held = sum(ends.values()), 0
    starter.begin()
    scanner.subscribe_buckets(dict.fromkeys(ends, 0))
    with target.writer() as writer:
        while left:
            for one in await scanner.poll_record_batch(1000):
                pending.append(one.batch)
                held += one.batch.num_rows
                left -= one.batch.num_rows
            if held >= GROUP or not left:
                writer.write_table(pa.Table.from_batches(pending).cast(SCHEMA), GROUP)
                pending, held = [], 0
    starter.done()


def write(total: int, place: Path, level: int) -> Spent:
    """Write rows from memory with pyarrow, two processes that have half of them each."""
    place.mkdir()
    half = total // 2
    return run_parallel(_write, [(n * half, half, Target(f"{place}/{n}.parquet", level)) for n in (0, 1)])


def _write(starter: Starter, start: int, count: int, target: Target) -> None:
    table = rows(start, count)
    starter.begin()
    with target.writer() as writer:
        writer.write_table(table, GROUP)
    starter.done()
