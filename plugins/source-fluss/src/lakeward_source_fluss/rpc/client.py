"""The client: synchronous, for any number of threads; below it one event loop on a daemon thread.

Answers are decoded in the caller's thread, so that big ones hold up nobody else.

Errors of all calls: `FlussServerError` and its classes where a server refused; `ServerUnreachableError` where nothing
was sent; `UnansweredReadError` (a SourceError) where a call that changes nothing got no answer; `UnansweredChangeError`
(an OutcomeUnknownError) where one that changes something got none; `UnsupportedApiError` where the server does not
offer the API (for leases a LeaseApiMissingError too); `ProtocolError` where an answer is malformed. Errors inside a
successful answer, for single tables or buckets, are the caller's: `wire.errors.check_code`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from lakeward_source_fluss.rpc.cluster import Cluster
from lakeward_source_fluss.rpc.loop import LoopThread
from lakeward_source_fluss.wire.apis import ApiKey, Request, response_class
from lakeward_source_fluss.wire.messages import PbTablePath
from lakeward_source_fluss.wire.protobuf import Message, decode, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward_source_fluss.rpc.options import ConnectOptions
    from lakeward_source_fluss.rpc.topology import BucketAddress, Buckets

R = TypeVar("R", bound=Message)


class FlussClient:
    """Calls to one cluster; each call may take `timeout_s`, waiting for servers and repeated attempts included."""

    def __init__(self, options: ConnectOptions) -> None:
        """Start the thread; opens no connection yet."""
        self._timeout_s = options.request_timeout_s
        self._loop = LoopThread("fluss-client")
        self._cluster = Cluster(options)

    @classmethod
    def connect(cls, options: ConnectOptions) -> FlussClient:
        """Return a client that has reached the cluster; close it.

        Raises:
            ServerUnreachableError: no server of the cluster could be asked.
            AuthenticationError: no server let us in.
            TlsError: certificates are wrong, or one side has no TLS.
        """
        client = cls(options)
        try:
            client._loop.run(client._cluster.refresh())
        except BaseException:
            client.close()
            raise
        return client

    def call_coordinator(self, request: Request[R], timeout_s: float | None = None) -> R:
        """Call the coordinator that leads; waits while one is being elected.

        `timeout_s` is in seconds; None for the client's own.

        Raises:
            SourceError: refused, or no coordinator in time; no effect. See the module.
            OutcomeUnknownError: no answer to a call that changes something.
        """
        return self.call_coordinator_seen(request, timeout_s)[0]

    def call_coordinator_seen(self, request: Request[R], timeout_s: float | None = None) -> tuple[R, int]:
        """Call the coordinator, and say on which connection: another may be open by the time one asks.

        Returned with the response is the `coordinator_connection_id` that it came on. `timeout_s` and errors are as of
        `call_coordinator`.
        """
        work = self._cluster.call_coordinator(request.api, encode(request), self._timeout(timeout_s))
        body, serial = self._loop.run(work)
        return decode(response_class(type(request)), body), serial

    def call_tablet(self, server_id: int, request: Request[R], timeout_s: float | None = None) -> R:
        """Call one of the tablet servers in `leaders`; raises soon if it is away, as the leader may be another by now.

        `timeout_s` and errors are as of `call_coordinator`; a long poll must have ended well before.
        """
        work = self._cluster.call_tablet(server_id, request.api, encode(request), self._timeout(timeout_s))
        return decode(response_class(type(request)), self._loop.run(work))

    def call_leader(self, bucket: BucketAddress, request: Request[R], timeout_s: float | None = None) -> R:
        """Call the leader of a bucket; waits for one and follows it when it moves.

        A leader that has moved says so inside a successful answer: then `forget_leaders` and call again. `timeout_s`
        and errors are as of `call_coordinator`.

        Raises:
            TableMissingError: there is no such table.
            BucketCountError: the request was made for another count of buckets; the new one is asked for next time.
        """
        return self.call_leader_seen(bucket, request, timeout_s)[0]

    def call_leader_seen(
        self, bucket: BucketAddress, request: Request[R], timeout_s: float | None = None
    ) -> tuple[R, int]:
        """Call the leader of a bucket, and say which server (its id) it is: what it answers for the bucket does not.

        `timeout_s` and errors are as of `call_leader`.
        """
        work = self._cluster.call_leader(bucket, request.api, encode(request), self._timeout(timeout_s))
        body, server_id = self._loop.run(work)
        return decode(response_class(type(request)), body), server_id

    def call_any(self, request: Request[R], timeout_s: float | None = None) -> R:
        """Call whichever server answers; for APIs that all of them serve.

        `timeout_s` and errors are as of `call_coordinator`.
        """
        work = self._cluster.call_any(request.api, encode(request), self._timeout(timeout_s))
        return decode(response_class(type(request)), self._loop.run(work))

    def leaders(self, path: PbTablePath, partition_id: int | None = None, *, fresh: bool = False) -> Mapping[int, int]:
        """Return who leads the buckets of a table or partition; remembered until `fresh` or `forget_leaders`.

        A table without partitions has the partition id None. With `fresh` it is asked, also where the answer is known.
        Bucket id maps to server id; a bucket without a leader now is left out.

        Raises:
            TableMissingError: there is no such table.
            PartitionMissingError: there is no such partition.
        """
        return self.buckets(path, partition_id, fresh=fresh).leaders

    def buckets(self, path: PbTablePath, partition_id: int | None = None, *, fresh: bool = False) -> Buckets:
        """Return the buckets of a table or partition. Arguments and errors as `leaders`."""
        return self._loop.run(self._cluster.buckets(path, partition_id, self._timeout_s, fresh=fresh))

    def forget_leaders(self, path: PbTablePath) -> None:
        """Ask again next time for the buckets of a table, and who leads them (after errors 12, 21, 44, 74 or 75)."""
        self._loop.run(self._forget(path))

    def tablet_servers(self, *, fresh: bool = False) -> Mapping[int, str]:
        """Return the tablet servers, server id to HOST:PORT; empty while all of them are starting.

        With `fresh` it is asked, also where the answer is known.
        """
        if fresh:
            self._loop.run(self._cluster.refresh())
        return {server_id: str(endpoint) for server_id, endpoint in self._cluster.servers.tablets.items()}

    def supports(self, api: ApiKey) -> bool:
        """Return whether the coordinator (for APIs of tablet servers alone: a tablet server) offers an API."""
        return api in self._loop.run(self._cluster.server_of(api, self._timeout_s)).apis

    def offered(self, api: ApiKey) -> Mapping[int, tuple[int, int]]:
        """Return all keys that the server of an API (as for `supports`) announces.

        Each has its oldest and newest version; those are among them that are not known here. `api` says whether it is a
        coordinator or a tablet server.
        """
        return self._loop.run(self._cluster.server_of(api, self._timeout_s)).versions

    @property
    def release(self) -> str:
        """What is known of the release of the servers that were asked, in words, for errors; empty where nothing is."""
        return self._cluster.release

    @property
    def coordinator_connection_id(self) -> int:
        """Which connection to the coordinator is open, 0 if none is.

        Another value than before means that the connection was lost in between, or that another server
        coordinates: epochs and leases taken before it count as lost until a renewal succeeds.
        """
        return self._cluster.coordinator_serial

    def close(self) -> None:
        """Close all connections and end the thread; calls in flight fail. A second time is harmless."""
        self._loop.close_after(self._cluster.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _timeout(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s

    async def _forget(self, path: PbTablePath) -> None:
        self._cluster.forget_leaders(path)
