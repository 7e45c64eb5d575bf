"""Remote log segments in an object store: a real S3 protocol, by a server of this machine."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import google_crc32c
import pytest
from pyarrow import fs

from lakeward.errors import SourceError
from lakeward_source_fluss.formats.logbatch import LogFormat
from lakeward_source_fluss.formats.remote import RemoteSegment, read_segment, remote_segments
from lakeward_source_fluss.formats.storage import Storage

moto_server = pytest.importorskip("moto.server", reason="moto[server] is the object store of these tests")
SECRET = "s3cret"  # noqa: S105 - of a server that takes any


def _batch(base: int, rows: int) -> bytes:
    tail = struct.pack("<hbiqii", 1, 0, rows - 1, -1, -1, rows) + (struct.pack("<ib", 4, 1) + bytes(3)) * rows
    head = struct.pack("<bqI", 0, 17, google_crc32c.value(tail))
    return struct.pack("<qi", base, len(head) + len(tail)) + head + tail


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    """How the store is reached, as `[source.storage]` would say."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {
        "access_key": "me",
        "secret_key": SECRET,
        "endpoint_override": f"{host}:{port}",
        "scheme": "http",
        "region": "us-east-1",
    }
    server.stop()


@pytest.fixture(scope="module")
def segment(options: dict[str, str]) -> RemoteSegment:
    """A segment of the offsets 100 to 200."""
    raw = b"".join(_batch(base, 10) for base in range(100, 200, 10))
    store = fs.S3FileSystem(**options, allow_bucket_creation=True)
    store.create_dir("fluss")
    with store.open_output_stream(f"fluss/log/db/t-1/0/abc/{100:020d}.log") as file:
        file.write(raw)
    (found,) = remote_segments("s3://fluss/log/db/t-1/0", [("abc", 100, 200, len(raw))])
    return found


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_segment_in_an_object_store_is_read_from_the_offset_on(
    options: dict[str, str], segment: RemoteSegment, scheme: str
) -> None:
    named = RemoteSegment(segment.path.replace("s3:", f"{scheme}:"), 100, 200, segment.size)
    found = [batch.base_offset for batch in read_segment(named, Storage(options), 155, LogFormat.COMPACTED)]
    assert found == [150, 160, 170, 180, 190]


def test_segment_that_is_gone_from_the_store_is_asked_for_again(
    options: dict[str, str], segment: RemoteSegment
) -> None:
    gone = RemoteSegment(segment.path.replace("abc", "xyz"), 100, 200, segment.size)
    with pytest.raises(SourceError, match=r"xyz.* cannot be read") as failed:
        list(read_segment(gone, Storage(options), 0, LogFormat.COMPACTED))
    assert SECRET not in str(failed.value)
