"""A server with one table of one bucket: its log, its remote segments, its snapshots and its leases, all in memory."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import google_crc32c
import pyarrow as pa
from rocksdict import Options, Rdict

from lakeward.model.tables import TableBucket, TablePath, TableSpec
from lakeward_source_fluss.formats.schema import FlussSchema
from lakeward_source_fluss.formats.types import FlussField, FlussType, Kind
from lakeward_source_fluss.rpc.client import FlussClient
from lakeward_source_fluss.rpc.releases import Release
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss.source.reader import FlussReader
from lakeward_source_fluss.source.tables import wire_path
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.messages import (
    FetchLogRequest,
    FetchLogResponse,
    GetKvSnapshotMetadataResponse,
    GetLatestKvSnapshotsResponse,
    GetTableInfoResponse,
    GetTableSchemaResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataResponse,
    PbBucketMetadata,
    PbFetchLogRespForBucket,
    PbFetchLogRespForTable,
    PbKvSnapshot,
    PbListOffsetsRespForBucket,
    PbRemoteLogFetchInfo,
    PbRemoteLogSegment,
    PbRemotePathAndLocalFile,
    PbTableMetadata,
    ScanKvResponse,
)
from lakeward_source_fluss_kit.releases import OFFERS, refusal_for_row_ttl
from lakeward_source_fluss_kit.schemas import dump_schema
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer, quick_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from typing import Self

TABLE_ID = 10
PATH = TablePath("db", "t")
BUCKET = TableBucket(TABLE_ID, None, 0)
COLUMNS = (FlussField("id", FlussType(Kind.INTEGER, nullable=False)), FlussField("v", FlussType(Kind.STRING)))


def varint(value: int) -> bytes:
    """Return a number as compacted rows hold it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def compacted(number: int, text: bytes) -> bytes:
    """Return a compacted row of `COLUMNS`."""
    return b"\0" + varint(number) + varint(len(text)) + text


def log_batch(base: int, rows: Iterable[bytes], *, offsets: int | None = None, change: int = 1) -> bytes:
    """Return a batch of a log in a row format.

    Args:
        base: the first row's offset.
        rows: each as the format has it.
        offsets: how many offsets the batch takes; as many as rows where it is not said.
        change: the change type of every row.
    """
    listed = list(rows)
    records = b"".join(struct.pack("<iB", len(row) + 1, change) + row for row in listed)
    taken = len(listed) if offsets is None else offsets
    tail = struct.pack("<hbiqii", 1, 0, taken - 1, -1, -1, len(listed)) + records
    head = struct.pack("<bqI", 0, 17, google_crc32c.value(tail))
    return struct.pack("<qi", base, len(head) + len(tail)) + head + tail


def arrow_batch(base: int, batch: pa.RecordBatch) -> bytes:
    """Return an append-only batch of a log in ARROW."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()
    payload: bytes = messages.read_next_message().serialize().to_pybytes()
    rows = batch.num_rows
    tail = struct.pack("<hbiqii", 1, 1, rows - 1, -1, -1, rows) + payload
    head = struct.pack("<bqI", 0, 17, google_crc32c.value(tail))
    return struct.pack("<qi", base, len(head) + len(tail)) + head + tail


@dataclass
class OneServer:
    """Serves the table `PATH`. Change its fields between calls.

    Attributes:
        columns: the table's.
        primary_key: its key; empty for a log table.
        properties: its options; the log is in COMPACTED rows, as `log_batch` makes them.
        batches: the leader's part of the log.
        earliest: the first offset that the server says to have.
        end: where the log ends; without it where the last batch does.
        remote: `remote_log_tablet_dir`.
        segments: the remote part of the log, listed for each fetch of an offset below `local`.
        local: the first offset that the leader itself has.
        refuses: whether an offset below `earliest` is refused; one that is not asks for a log with a gap.
        fetch_bytes: what the leader answers at most, but one batch at least.
        release: the server's: what it announces, and what it refuses.
        offers: the APIs that the server has; those of its release where it is not said.
        further: what an API answers instead.
    """

    columns: tuple[FlussField, ...] = COLUMNS
    primary_key: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=lambda: {"table.log.format": "COMPACTED"})
    batches: list[bytes] = field(default_factory=list)
    earliest: int = 0
    end: int | None = None
    remote: str = ""
    segments: list[PbRemoteLogSegment] = field(default_factory=list)
    local: int = 0
    refuses: bool = True
    fetch_bytes: int = 1 << 30
    release: Release = Release.V1_0
    offers: tuple[int, ...] = ()
    further: dict[int, Callable[[Call], Answer]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin to listen."""
        self.schema = FlussSchema(self.columns, self.primary_key)
        self.server = FakeServer(self._answer, metadata=self._metadata, offers=self.offers or OFFERS[self.release])
        self._answers: dict[int, Callable[[Call], Answer]] = {
            ApiKey.GET_TABLE_SCHEMA: lambda _: GetTableSchemaResponse(
                schema_id=1, schema_json=dump_schema(self.schema)
            ),
            ApiKey.GET_TABLE_INFO: lambda _: GetTableInfoResponse(
                table_id=TABLE_ID, schema_id=1, table_json=b"{}", created_time=0, modified_time=0
            ),
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.FETCH_LOG: self._fetch,
        }

    def __enter__(self) -> Self:
        """Be closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self.server.close()

    @property
    def table(self) -> TableSpec:
        """The table, as the source describes it."""
        return TableSpec(
            PATH, TABLE_ID, 1, self.schema.to_arrow(), self.primary_key, (), ("id",), 1, 180.0, self.properties
        )

    @staticmethod
    def spec(primary_key: tuple[str, ...]) -> TableSpec:
        """Return a table of `COLUMNS`, as the source describes it."""
        schema = FlussSchema(COLUMNS, primary_key).to_arrow()
        return TableSpec(PATH, TABLE_ID, 1, schema, primary_key, (), ("id",), 1, 180.0)

    def client(self) -> FlussClient:
        """Open a client; close it."""
        return client_of(self.server)

    def reader(self, client: FlussClient, spool: Path | None = None) -> FlussReader:
        """Return a reader of the table."""
        options = FlussOptions(bootstrap=str(self.server.endpoint), spool=str(spool or ""))
        return FlussReader(client, options, self.table)

    def bounds(self, batch: bytes) -> tuple[int, int]:
        """Return the first offset of a batch, and the first one after it."""
        base, delta = struct.unpack_from("<q", batch, 0)[0], struct.unpack_from("<i", batch, 28)[0]
        return base, base + delta + 1

    def segment(self, name: str, start: int, end: int, directory: Path, batches: Iterable[bytes]) -> None:
        """Put a segment into remote storage, and list it."""
        raw = b"".join(batches)
        (directory / name).mkdir(parents=True)
        (directory / name / f"{start:020d}.log").write_bytes(raw)
        self.remote = f"file:{directory}"
        self.segments.append(
            PbRemoteLogSegment(
                remote_log_segment_id=name,
                remote_log_start_offset=start,
                remote_log_end_offset=end,
                segment_size_in_bytes=len(raw),
            )
        )

    def put_snapshot(
        self, directory: Path, values: Iterable[tuple[bytes, bytes]], log_offset: int
    ) -> GetKvSnapshotMetadataResponse:
        """Let the server have one KV snapshot, of these keys and values, whatever its id; return its files."""
        database = Rdict(str(directory), Options(raw_mode=True))
        for key, value in values:
            database[key] = value
        database.flush()
        database.close()
        files = [path for path in directory.iterdir() if path.name.startswith(("CURRENT", "MANIFEST"))]
        files += directory.glob("*.sst")
        listed = tuple(
            PbRemotePathAndLocalFile(remote_path=f"file:{path}", local_file_name=path.name) for path in files
        )
        answer = GetKvSnapshotMetadataResponse(log_offset=log_offset, snapshot_files=listed)
        self.further[ApiKey.GET_KV_SNAPSHOT_METADATA] = lambda _: answer
        latest = GetLatestKvSnapshotsResponse(
            table_id=TABLE_ID, latest_snapshots=(PbKvSnapshot(bucket_id=0, snapshot_id=1, log_offset=log_offset),)
        )
        self.further[ApiKey.GET_LATEST_KV_SNAPSHOTS] = lambda _: latest
        return answer

    def put_scan(self, values: Iterable[bytes], log_offset: int) -> None:
        """Let a scan of the bucket give these values."""
        listed = list(values)
        records = b"".join(struct.pack("<i", len(value)) + value for value in listed)
        data = struct.pack("<ibi", 5 + len(records), 0, len(listed)) + records
        answer = ScanKvResponse(log_offset=log_offset, has_more_results=False, records=data)
        self.further[ApiKey.SCAN_KV] = lambda _: answer

    @property
    def log_end(self) -> int:
        """Where the log ends."""
        if self.end is not None:
            return self.end
        return self.bounds(self.batches[-1])[1] if self.batches else self.earliest

    def _answer(self, call: Call) -> Answer:
        if self.release is Release.V1_0 and (refused := refusal_for_row_ttl(call, self.properties)) is not None:
            return refused
        found = self.further.get(call.api) or self._answers.get(call.api)
        return None if found is None else found(call)

    def _list_offsets(self, call: Call) -> Answer:
        offset = self.earliest if call.read(ListOffsetsRequest).offset_type == 0 else self.log_end
        return ListOffsetsResponse(buckets_resp=(PbListOffsetsRespForBucket(bucket_id=0, offset=offset),))

    def _fetch(self, call: Call) -> Answer:
        (asked,) = call.read(FetchLogRequest).tables_req[0].buckets_req
        at = asked.fetch_offset
        if (self.refuses and at < self.earliest) or at > self.log_end:
            bucket = PbFetchLogRespForBucket(bucket_id=0, error_code=ErrorCode.LOG_OFFSET_OUT_OF_RANGE)
        elif at < self.local:
            listed = tuple(one for one in self.segments if one.remote_log_end_offset > at)
            remote = PbRemoteLogFetchInfo(
                remote_log_tablet_dir=self.remote, remote_log_segments=listed, first_start_pos=0
            )
            bucket = PbFetchLogRespForBucket(bucket_id=0, remote_log_fetch_info=remote)
        else:
            bucket = PbFetchLogRespForBucket(bucket_id=0, records=self._records(at))
        table = PbFetchLogRespForTable(table_id=TABLE_ID, buckets_resp=(bucket,))
        return FetchLogResponse(tables_resp=(table,))

    def _records(self, at: int) -> bytes:
        given = b""
        for batch in self.batches:
            if self.bounds(batch)[1] > at:
                if given and len(given) + len(batch) > self.fetch_bytes:
                    break
                given += batch
        return given

    def _metadata(self) -> MetadataResponse:
        node = self.server.node()
        table = PbTableMetadata(
            table_path=wire_path(PATH),
            table_id=TABLE_ID,
            schema_id=1,
            table_json=b"{}",
            bucket_metadata=(PbBucketMetadata(bucket_id=0, leader_id=0),),
            created_time=0,
            modified_time=0,
            remote_data_dir="file:///remote" if self.release is Release.V1_0 else None,
        )
        return MetadataResponse(coordinator_server=node, tablet_servers=(node,), table_metadata=(table,))


def client_of(server: FakeServer) -> FlussClient:
    """Open a client; close it."""
    return FlussClient.connect(quick_options(server, timeout_s=60.0, silence_s=60.0))
