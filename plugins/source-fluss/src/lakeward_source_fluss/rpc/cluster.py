"""A cluster as a client knows it: finds the server for a call, waits for servers that are away, asks again.

What is repeated: everything that surely had no effect (no connection, 65 from a coordinator that does not lead), and
calls that change nothing. A call that changes something is never sent twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from lakeward.errors import ProtocolError, SourceError
from lakeward_source_fluss.rpc.backoff import Attempts
from lakeward_source_fluss.rpc.pool import Pool
from lakeward_source_fluss.rpc.releases import in_words
from lakeward_source_fluss.rpc.topology import BucketAddress, Buckets, Topology, described_buckets, topology
from lakeward_source_fluss.wire.apis import TABLET_ONLY, ApiKey
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.errors import (
    BucketCountError,
    FlussServerError,
    NotCoordinatorLeaderError,
    ServerUnreachableError,
    StaleMetadataError,
    UnansweredReadError,
    UnsupportedApiError,
)
from lakeward_source_fluss.wire.messages import (
    GetTableInfoRequest,
    MetadataRequest,
    MetadataResponse,
    PbTablePath,
)
from lakeward_source_fluss.wire.protobuf import decode, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from lakeward_source_fluss.rpc.connection import Connection
    from lakeward_source_fluss.rpc.options import ConnectOptions, Endpoint

_PASSING: Final = (ServerUnreachableError, UnansweredReadError, NotCoordinatorLeaderError)
"""Nothing happened, and another server or a later attempt may do."""

_SHARE_S: Final = 5.0
"""Time of a server for a call that others can answer too; metadata comes within milliseconds."""

T = TypeVar("T")


class Cluster:
    """All of it runs in one event loop."""

    def __init__(self, options: ConnectOptions) -> None:
        """Set up; nothing is opened yet."""
        self._options = options
        self._pool = Pool(options)
        self._topology = Topology()
        self._tablets_once_seen: Mapping[int, Endpoint] = {}
        self._buckets: dict[tuple[PbTablePath, int | None], Buckets] = {}
        self._silent: set[Endpoint] = set()
        self._refreshing = asyncio.Lock()
        self._refreshed = 0

    @property
    def servers(self) -> Topology:
        """The servers, as far as they are known now."""
        return self._topology

    @property
    def coordinator_serial(self) -> int:
        """The serial of the connection to the coordinator, 0 if there is none now. For any thread."""
        return self._pool.serial(self._topology.coordinator)

    @property
    def release(self) -> str:
        """What is known of the release of the servers that were asked, in words. For any thread."""
        return in_words(self._pool.releases())

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    async def call_coordinator(self, api: ApiKey, body: bytes, timeout_s: float) -> tuple[bytes, int]:
        """Call the coordinator that leads; waits for one. Raises as `Connection.call`.

        Returned are the response, and the serial of the connection that it came on.
        """
        attempts = Attempts(self._options, timeout_s)
        while True:
            try:
                connection = await _in_time(self.coordinator(), attempts)
                return await connection.call(api, body, attempts.left_s), connection.serial
            except _PASSING as error:
                self._topology = Topology(None, self._topology.tablets)
                await attempts.pause(error)

    async def call_tablet(self, server_id: int, api: ApiKey, body: bytes, timeout_s: float) -> bytes:
        """Call a tablet server; one that broke the connection is tried once more, by fresh metadata."""
        attempts = Attempts(self._options, timeout_s)
        try:
            return await self._call_tablet_once(server_id, api, body, attempts)
        except (ServerUnreachableError, UnansweredReadError) as error:
            await attempts.pause(error)
            await _in_time(self.refresh(), attempts)
            return await self._call_tablet_once(server_id, api, body, attempts)

    async def call_leader(self, bucket: BucketAddress, api: ApiKey, body: bytes, timeout_s: float) -> tuple[bytes, int]:
        """Call the leader of a bucket; waits for one, and follows it when it moves.

        Return the response and the server's id.

        Raises:
            BucketCountError: the request was made for another count of buckets.
        """
        attempts = Attempts(self._options, timeout_s)
        while True:
            try:
                server_id = await self._leader(bucket, attempts)
                return await self._call_tablet_once(server_id, api, body, attempts), server_id
            except BucketCountError:
                self.forget_leaders(bucket.path)
                raise  # the same request would be refused again
            except (*_PASSING, StaleMetadataError) as error:
                self.forget_leaders(bucket.path)
                await attempts.pause(error)

    async def call_any(self, api: ApiKey, body: bytes, timeout_s: float) -> bytes:
        """Call any server that offers the API; one that cannot answer is passed over."""
        attempts = Attempts(self._options, timeout_s)
        while True:
            try:
                return await self._call_first(api, body, attempts)
            except _PASSING as error:
                await attempts.pause(error)

    async def coordinator(self) -> Connection:
        """Return a connection to the coordinator."""
        if self._topology.coordinator is None:
            await self.refresh()
        if self._topology.coordinator is None:
            message = "the cluster names no coordinator now"
            raise ServerUnreachableError(message)
        return await self._pool.get(self._topology.coordinator)

    async def server_of(self, api: ApiKey, timeout_s: float) -> Connection:
        """Return a connection to one of the servers that an API belongs to; waits for such a server."""
        attempts = Attempts(self._options, timeout_s)
        while True:
            try:
                if api not in TABLET_ONLY:
                    return await _in_time(self.coordinator(), attempts)
                if not self._topology.tablets:
                    await _in_time(self.refresh(), attempts)
                for server_id in self._topology.tablets:
                    return await _in_time(self._tablet(server_id), attempts)
                message = "the cluster names no tablet server now"
                raise ServerUnreachableError(message)
            except _PASSING as error:
                await attempts.pause(error)

    async def buckets(self, path: PbTablePath, partition_id: int | None, timeout_s: float, *, fresh: bool) -> Buckets:
        """Return the buckets of a table or partition, and who leads them.

        A table without partitions has the partition id None. With `fresh` it is asked, also where the answer is known;
        `timeout_s` is in seconds.

        Raises:
            TableMissingError: there is no such table.
            PartitionMissingError: there is no such partition.
        """
        key = (path, partition_id)
        if fresh or key not in self._buckets:
            partitions = () if partition_id is None else (partition_id,)
            request = MetadataRequest(table_path=(path,), partitions_id=partitions)
            try:
                body = await self.call_any(ApiKey.GET_METADATA, encode(request), timeout_s)
            except FlussServerError as error:
                await self._explain(path, error, timeout_s)
                raise
            answer = decode(MetadataResponse, body)
            self._note(topology(answer))
            self._buckets[key] = described_buckets(answer, partition_id)
        return self._buckets[key]

    def forget_leaders(self, path: PbTablePath) -> None:
        """Ask again next time for the buckets of a table, and who leads them."""
        for key in [key for key in self._buckets if key[0] == path]:
            del self._buckets[key]

    async def refresh(self) -> None:
        """Ask the servers that are known who is there.

        Raises:
            ServerUnreachableError: none of them could say.
            AuthenticationError: none of them let us in.
        """
        before = self._refreshed
        async with self._refreshing:
            if self._refreshed != before:
                return  # somebody else asked while we waited
            faults: list[SourceError | ProtocolError] = []
            best = Topology()
            for endpoint in self._candidates():
                try:
                    found = await self._described_by(endpoint)
                except (SourceError, ProtocolError) as error:
                    self._silent.add(endpoint)
                    faults.append(error)
                    continue
                self._silent.discard(endpoint)
                # One without tablet servers is a server that starts; it may still name the coordinator.
                best = found if found.tablets or best.empty else best
                if best.tablets:
                    break
            if best.empty:
                raise self._lost(faults)
            self._refreshed += 1
            self._note(best)

    async def _described_by(self, endpoint: Endpoint) -> Topology:
        connection = await self._pool.get(endpoint)
        body = await connection.call(ApiKey.GET_METADATA, encode(MetadataRequest()), self._options.connect_timeout_s)
        return topology(decode(MetadataResponse, body))

    def _candidates(self) -> tuple[Endpoint, ...]:
        # Tablet servers first: a coordinator that stands by answers nothing.
        known = [*self._topology.tablets.values(), *self._tablets_once_seen.values(), *self._options.bootstrap]
        if self._topology.coordinator is not None:
            known.append(self._topology.coordinator)
        # Last the ones that failed when they were asked last: one that hangs still takes connections.
        return tuple(sorted(dict.fromkeys(known), key=lambda one: (one in self._silent, not self._pool.serial(one))))

    def _lost(self, faults: list[SourceError | ProtocolError]) -> SourceError | ProtocolError:
        for fault in faults:
            if not isinstance(fault, _PASSING):
                return fault
        said = "; ".join(str(fault) for fault in faults) or "none of the servers names any"
        if not self._refreshed:
            return ServerUnreachableError(
                f"source.bootstrap: expected a server that can be reached, found none: {said}"
            )
        return ServerUnreachableError(f"no server of the cluster could be asked: {said}")

    def _note(self, found: Topology) -> None:
        if not found.empty:
            self._topology = found
            self._tablets_once_seen = found.tablets or self._tablets_once_seen

    async def _call_tablet_once(self, server_id: int, api: ApiKey, body: bytes, attempts: Attempts) -> bytes:
        connection = await _in_time(self._tablet(server_id), attempts)
        return await connection.call(api, body, attempts.left_s)

    async def _tablet(self, server_id: int) -> Connection:
        if server_id not in self._topology.tablets:
            await self.refresh()
        endpoint = self._topology.tablets.get(server_id)
        if endpoint is None:
            message = f"tablet server {server_id}: not among the cluster's {sorted(self._topology.tablets)}"
            raise ServerUnreachableError(message)
        return await self._pool.get(endpoint)

    async def _leader(self, bucket: BucketAddress, attempts: Attempts) -> int:
        known = await self.buckets(bucket.path, bucket.partition_id, attempts.left_s, fresh=False)
        if bucket.bucket_id not in known.leaders:
            raise StaleMetadataError(str(bucket), ErrorCode.LEADER_NOT_AVAILABLE)
        return known.leaders[bucket.bucket_id]

    async def _call_first(self, api: ApiKey, body: bytes, attempts: Attempts) -> bytes:
        faults: list[SourceError | ProtocolError] = []
        too_old: UnsupportedApiError | None = None
        # A server that hangs may not use up the time of the others; the last one may take longer.
        half_s = max(attempts.left_s / 2, 1.0)
        candidates = self._candidates()
        for endpoint in candidates:
            share_s = half_s if endpoint == candidates[-1] else min(half_s, _SHARE_S)
            try:
                connection = await _in_time(self._pool.get(endpoint), attempts)
                answer = await connection.call(api, body, min(attempts.left_s, share_s))
            except UnsupportedApiError as error:
                too_old = error
            except FlussServerError as error:
                if not isinstance(error, NotCoordinatorLeaderError):
                    raise
                faults.append(error)
            except (SourceError, ProtocolError) as error:
                self._silent.add(endpoint)
                faults.append(error)
            else:
                self._silent.discard(endpoint)
                return answer
        raise too_old or self._lost(faults)

    async def _explain(self, path: PbTablePath, error: FlussServerError, timeout_s: float) -> None:
        # An unknown table makes GET_METADATA fail with -1; GET_TABLE_INFO says that it is gone.
        if error.server_code == ErrorCode.UNKNOWN_SERVER_ERROR:
            await self.call_any(ApiKey.GET_TABLE_INFO, encode(GetTableInfoRequest(table_path=path)), timeout_s)


async def _in_time(work: Awaitable[T], attempts: Attempts) -> T:
    try:
        async with asyncio.timeout_at(attempts.deadline):
            return await work
    except TimeoutError as error:
        message = "no connection in time"
        raise attempts.last or ServerUnreachableError(message) from error
