"""Writes rows with pyfluss, an independent client, in a process of its own: it may abort when it exits.

Run as a script it is that process: it reads pickled calls from standard input and answers on standard output.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

CHUNK = 100_000
"""Rows between two flushes: pyfluss hangs with about a million in flight (fluss.md, "Clusters for tests")."""
PATIENCE_S = 120.0
"""Seconds for one call: pyfluss waits for ever for a leader that has moved while it looked."""
LEADER_S = 15.0
"""Seconds for the buckets of a new table to have leaders; most have them after one."""
PARTITION_S = 90.0
"""Seconds for those of a new partition: whatever a busy machine takes, and less than `PATIENCE_S`."""
SERVER_S = 30.0
"""Seconds for a tablet server that has lost its session to be known again, or for one that starts."""
_AGAIN_S = 0.2
_TOO_FEW_SERVERS = 17
"""Fluss's code for fewer tablet servers than replicas; the table was not made."""
_LENGTH = 8
"""Bytes of the length before each message."""


class FlussWriter:
    """A pyfluss client in a child process; one call at a time."""

    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str] | None = None,
        restart_coordinator: Callable[[], None] | None = None,
        leader_s: float = LEADER_S,
    ) -> None:
        """Start the child; of several `host:port` in `bootstrap` the first is taken.

        `properties` are further settings of pyfluss. `restart_coordinator` is called once where a new table gets no
        leader in `leader_s` seconds: the coordinator of 0.9 misses one of hundreds of them on a busy machine, for as
        long as it runs (fluss #1018; mended by #2710). Default: that is an error.
        """
        self._restart_coordinator = restart_coordinator
        self._leader_s = leader_s
        self._settings = {"bootstrap.servers": bootstrap.partition(",")[0], **(properties or {})}
        self._child = _start()
        self._call("connect", self._settings)

    def create(
        self,
        name: str,
        schema: pa.Schema,
        *,
        key: Sequence[str] = (),
        partition: Sequence[str] = (),
        buckets: int = 1,
        bucket_key: Sequence[str] | None = None,
        log_format: str | None = None,
        kv_format: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Create `database.table`, wait for its leaders and return its id; the database is made if it is not there.

        A cluster whose tablet servers are away for a moment is waited for. The buckets of a partitioned table are made
        with its partitions: those are not waited for.

        Raises:
            RuntimeError: the table cannot be made, or its buckets get no leaders.
        """
        arguments = (list(key), list(partition), buckets, None if bucket_key is None else list(bucket_key))
        table_id = int(self._call("create", name, schema, *arguments, log_format, kv_format, dict(properties or {})))
        if not partition and not self._call("leads", name, buckets, self._leader_s):
            self._await_leaders_anew(name, buckets)
        return table_id

    def _await_leaders_anew(self, name: str, buckets: int) -> None:
        """Restart the coordinator that missed a table, if that may be done."""
        if self._restart_coordinator is not None:
            self._restart_coordinator()
            # What it learned when there was no leader it would believe for ever.
            self.forget()
            if self._call("leads", name, buckets, LEADER_S):
                return
        message = (
            f"pyfluss: {name} was made, but has no leader after {self._leader_s:g} s: the coordinator has missed it"
            " (fluss #1018); it reads all tables when it is started again"
        )
        raise RuntimeError(message)

    def append(self, name: str, rows: pa.Table) -> None:
        """Append rows to a log table, one batch for each batch of `rows`."""
        self._call("append", name, rows)

    def change(self, name: str, changes: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Upsert and delete rows of a primary-key table, in order, and flush once."""
        self._call("change", name, list(changes))

    def upsert(self, name: str, rows: pa.Table) -> None:
        """Upsert many rows."""
        self._call("upsert", name, rows)

    def partition(self, name: str, values: Mapping[str, str]) -> None:
        """Create a partition, and wait for its leaders; one that is there is no error.

        Raises:
            RuntimeError: the partition cannot be made, or its buckets get no leaders.
        """
        if not self._call("partition", name, dict(values), PARTITION_S):
            message = f"pyfluss: {name} has a partition {dict(values)}, but no leader of it after {PARTITION_S:g} s"
            raise RuntimeError(message)

    def drop_partition(self, name: str, values: Mapping[str, str]) -> None:
        """Drop a partition."""
        self._call("drop_partition", name, dict(values))

    def drop(self, name: str) -> None:
        """Drop a table; one that is not there is no error."""
        self._call("drop", name)

    def forget(self) -> None:
        """Let the child forget what it knows of tables, after one was altered."""
        self._call("forget")

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                stream.close()

    def _call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - whatever the call gives
        stdin, stdout = self._child.stdin, self._child.stdout
        if stdin is None or stdout is None:
            message = "the child has no pipes"
            raise RuntimeError(message)
        _send(stdin, (method, arguments))
        if not select.select([stdout], [], [], PATIENCE_S)[0]:
            self.close()
            message = f"pyfluss: {method}: no answer within {PATIENCE_S:.0f} s; whether it was done is unknown"
            if method != "connect":
                self._child = _start()
                self._call("connect", self._settings)
            raise TimeoutError(message)
        failed, answer = _receive(stdout)
        if failed:
            message = f"pyfluss: {method}: {answer}"
            raise RuntimeError(message)
        return answer


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class _Child:
    """The calls, in the child."""

    async def connect(self, settings: dict[str, str]) -> None:
        import fluss  # noqa: PLC0415 - in the child alone

        self._fluss = fluss
        self._settings = settings
        self._connection = await fluss.FlussConnection.create(fluss.Config(settings))
        self._admin = self._connection.get_admin()

    async def create(  # noqa: PLR0917 - the parent's arguments
        self,
        name: str,
        schema: pa.Schema,
        key: list[str],
        partition: list[str],
        buckets: int,
        bucket_key: list[str] | None,
        log_format: str | None,
        kv_format: str | None,
        properties: dict[str, str],
    ) -> int:
        await self._admin.create_database(name.partition(".")[0], ignore_if_exists=True)
        further: dict[str, Any] = {
            "bucket_keys": bucket_key,
            "log_format": log_format,
            "kv_format": kv_format,
            "partition_keys": partition or None,
        }
        descriptor = self._fluss.TableDescriptor(
            self._fluss.Schema(schema, primary_keys=key or None),
            bucket_count=buckets,
            properties=properties,
            **{field: value for field, value in further.items() if value is not None},
        )
        await self._make(partial(self._admin.create_table, self._path(name), descriptor, ignore_if_exists=False))
        return int((await self._admin.get_table_info(self._path(name))).table_id)

    async def _make(self, create: Callable[[], Awaitable[object]]) -> None:
        last = time.monotonic() + SERVER_S
        while True:
            try:
                await create()
            except self._fluss.FlussError as error:
                if error.error_code != _TOO_FEW_SERVERS or time.monotonic() > last:
                    raise
            else:
                return
            await asyncio.sleep(_AGAIN_S)

    async def leads(self, name: str, buckets: int, seconds: float) -> bool:
        """Say whether all buckets of a table have leaders that answer, at once or soon."""
        return await self._answers(partial(self._admin.list_offsets, self._path(name), list(range(buckets))), seconds)

    async def _answers(self, offsets: Callable[[Any], Awaitable[object]], seconds: float) -> bool:
        newest = self._fluss.OffsetSpec.latest()
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        await offsets(newest)
                    except self._fluss.FlussError:
                        await asyncio.sleep(_AGAIN_S)
                    else:
                        return True
        except TimeoutError:
            return False

    async def append(self, name: str, rows: pa.Table) -> None:
        writer = (await self._table(name)).new_append().create_writer()
        waiting = 0
        for batch in rows.to_batches():
            writer.write_arrow_batch(batch)
            waiting += len(batch)
            if waiting >= CHUNK:
                await writer.flush()
                waiting = 0
        await writer.flush()

    async def change(self, name: str, changes: list[tuple[str, dict[str, Any]]]) -> None:
        writer = (await self._table(name)).new_upsert().create_writer()
        for operation, row in changes:
            if operation == "delete":
                writer.delete(row)
            else:
                writer.upsert(row)
        await writer.flush()

    async def upsert(self, name: str, rows: pa.Table) -> None:
        writer = (await self._table(name)).new_upsert().create_writer()
        for number, row in enumerate(rows.to_pylist(), 1):
            writer.upsert(row)
            if number % CHUNK == 0:
                await writer.flush()
        await writer.flush()

    async def partition(self, name: str, values: dict[str, str], seconds: float) -> bool:
        await self._make(partial(self._admin.create_partition, self._path(name), values, ignore_if_exists=True))
        table = await self._admin.get_table_info(self._path(name))
        partition = "$".join(values[key] for key in table.get_partition_keys())
        arguments = (self._path(name), partition, list(range(table.num_buckets)))
        return await self._answers(partial(self._admin.list_partition_offsets, *arguments), seconds)

    async def drop_partition(self, name: str, values: dict[str, str]) -> None:
        await self._admin.drop_partition(self._path(name), values)

    async def drop(self, name: str) -> None:
        await self._admin.drop_table(self._path(name), ignore_if_not_exists=True)
        # A connection remembers tables by name, and would take a new one for the old.
        await self.connect(self._settings)

    async def forget(self) -> None:
        await self.connect(self._settings)

    async def _table(self, name: str) -> Any:  # noqa: ANN401 - pyfluss is not there when types are checked
        return await self._connection.get_table(self._path(name))

    def _path(self, name: str) -> Any:  # noqa: ANN401 - pyfluss is not there when types are checked
        database, _, table = name.partition(".")
        return self._fluss.TablePath(database, table)


def _send(stream: IO[bytes], message: object) -> None:
    data = pickle.dumps(message)
    stream.write(len(data).to_bytes(_LENGTH, "big") + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:  # noqa: ANN401 - whatever was sent
    length = stream.read(_LENGTH)
    if len(length) < _LENGTH:
        raise EOFError
    return pickle.loads(stream.read(int.from_bytes(length, "big")))  # noqa: S301 - from our own child or parent


async def _serve() -> None:
    child = _Child()
    while True:
        try:
            method, arguments = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (False, await getattr(child, method)(*arguments))
        except Exception as error:  # noqa: BLE001 - told to the parent
            answer = (True, f"{type(error).__name__}: {error}")
        _send(sys.stdout.buffer, answer)


if __name__ == "__main__":
    asyncio.run(_serve())
    os._exit(0)
