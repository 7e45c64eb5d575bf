"""A log is read without a gap, or not at all: at the leader, in remote segments, and from one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.errors import CorruptFileError, LogGapError, LogTruncatedError, OffsetsBeyondLogError, SourceError
from lakeward.model.splits import LogSplit
from lakeward_source_fluss.rpc.releases import Release
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.messages import FetchLogResponse, PbFetchLogRespForBucket, PbFetchLogRespForTable
from lakeward_source_fluss_kit.oneserver import BUCKET, TABLE_ID, OneServer, compacted, log_batch


@pytest.fixture
def server(release: Release) -> Iterator[OneServer]:
    """A server whose log is still empty."""
    with OneServer(release=release) as started:
        yield started


def batch(base: int, count: int = 10) -> bytes:
    return log_batch(base, (compacted(number, b"x") for number in range(base, base + count)))


def read(server: OneServer, start: int, stop: int) -> list[int]:
    """Read the bucket's log; the ids, which are the offsets."""
    with server.client() as client:
        found = list(server.reader(client).read_log(LogSplit("b0", BUCKET, (), start, stop)))
    return [number for one in found for number in one.records.column("id").to_pylist()]


def test_leader_whose_log_begins_after_what_was_asked_for_is_a_gap(server: OneServer) -> None:
    server.batches = [batch(20), batch(30)]

    with pytest.raises(LogGapError, match=r"bucket 10/0.*from offset 10.*from offset 20"):
        read(server, 10, 40)


def test_gap_beyond_the_splits_end_is_an_error_at_once_and_no_wait(server: OneServer) -> None:
    server.batches = [batch(0), batch(40)]

    with pytest.raises(LogGapError, match=r"from offset 10.*from offset 40"):
        read(server, 0, 20)


@pytest.mark.parametrize("fetch_bytes", [1, 1 << 30])
def test_gap_between_two_batches_of_a_leader_is_an_error_with_both_offsets(server: OneServer, fetch_bytes: int) -> None:
    server.batches, server.fetch_bytes = [batch(0), batch(20)], fetch_bytes

    with pytest.raises(LogGapError, match=r"from offset 10.*from offset 20") as refused:
        read(server, 0, 30)
    assert (refused.value.expected, refused.value.found) == (10, 20)


def test_batches_that_overlap_give_no_row_twice(server: OneServer) -> None:
    server.batches = [batch(0), batch(5)]

    with pytest.raises(LogGapError, match=r"from offset 10.*from offset 5"):
        read(server, 0, 15)


def test_code_of_a_later_server_ends_a_read_at_once_and_is_named_with_the_server(server: OneServer) -> None:
    refused = PbFetchLogRespForBucket(bucket_id=0, error_code=999, error_message="of a later release")
    answer = FetchLogResponse(tables_resp=(PbFetchLogRespForTable(table_id=TABLE_ID, buckets_resp=(refused,)),))
    server.further[ApiKey.FETCH_LOG] = lambda _: answer

    with pytest.raises(SourceError, match=r"at tablet server 0: .*UNKNOWN_CODE \(999\): of a later release"):
        read(server, 0, 10)

    assert len(server.server.asked(ApiKey.FETCH_LOG)) == 1


def test_gap_that_retention_explains_says_so(server: OneServer) -> None:
    server.batches, server.earliest, server.refuses = [batch(0), batch(20)], 20, False

    with pytest.raises(LogTruncatedError, match=r"from offset 10.*begin at 20.*retention"):
        read(server, 0, 30)


def test_offset_that_retention_took_before_reading_began_says_so(server: OneServer) -> None:
    server.batches, server.earliest = [batch(20)], 20

    with pytest.raises(LogTruncatedError, match=r"from offset 0.*begin at 20"):
        read(server, 0, 30)


def test_offsets_of_batches_without_rows_are_no_gap(server: OneServer) -> None:
    server.batches = [batch(0), log_batch(10, (), offsets=3), batch(13), log_batch(23, (), offsets=1)]

    assert read(server, 0, 24) == [*range(10), *range(13, 23)]


def test_split_that_begins_and_ends_inside_batches_has_no_gap(server: OneServer) -> None:
    server.batches = [batch(0), batch(10), batch(20)]

    assert read(server, 7, 22) == list(range(7, 22))


@pytest.fixture
def remote(server: OneServer, tmp_path: Path) -> OneServer:
    """The offsets 0 to 30 in remote segments of ten, 30 to 40 at the leader."""
    for base in (0, 10, 20):
        server.segment(f"s{base}", base, base + 10, tmp_path, [batch(base)])
    server.batches, server.local = [batch(30)], 30
    return server


def test_remote_segments_and_the_leaders_part_are_read_as_one_log(remote: OneServer) -> None:
    assert read(remote, 0, 40) == list(range(40))


@pytest.mark.parametrize("missing", [0, 1])
def test_remote_segment_that_is_not_listed_is_a_gap(remote: OneServer, missing: int) -> None:
    del remote.segments[missing]

    with pytest.raises(LogGapError, match=rf"from offset {missing}0?\b.*from offset {missing + 1}0"):
        read(remote, 0, 40)


def test_leader_that_goes_on_after_the_remote_segments_with_a_gap_is_noticed(remote: OneServer) -> None:
    del remote.segments[2]
    remote.local = 20

    with pytest.raises(LogGapError, match=r"from offset 20.*from offset 30"):
        read(remote, 0, 40)


def test_remote_segment_that_begins_later_than_its_name_says_is_a_gap(remote: OneServer, tmp_path: Path) -> None:
    (tmp_path / "s10" / f"{10:020d}.log").write_bytes(batch(15, 5))

    with pytest.raises(LogGapError, match=r"from offset 10.*from offset 15"):
        read(remote, 0, 40)


def test_gap_inside_a_remote_segment_is_noticed(remote: OneServer, tmp_path: Path) -> None:
    (tmp_path / "s10" / f"{10:020d}.log").write_bytes(batch(10, 3) + batch(17, 3))

    with pytest.raises(LogGapError, match=r"from offset 13.*from offset 17"):
        read(remote, 0, 40)


def test_remote_segment_that_holds_other_records_gives_none_of_them(remote: OneServer, tmp_path: Path) -> None:
    (tmp_path / "s10" / f"{10:020d}.log").write_bytes(batch(0, 5) + batch(5, 5))

    with pytest.raises(CorruptFileError, match="records up to offset 20"):
        read(remote, 0, 40)


def test_remote_file_that_retention_took_says_so(remote: OneServer, tmp_path: Path) -> None:
    (tmp_path / "s10" / f"{10:020d}.log").unlink()
    remote.earliest, remote.refuses = 20, False

    with pytest.raises(LogTruncatedError, match=r"from offset 10.*begin at 20.*retention"):
        read(remote, 0, 40)


def test_remote_file_that_is_gone_without_a_reason_names_the_file(remote: OneServer, tmp_path: Path) -> None:
    (tmp_path / "s10" / f"{10:020d}.log").unlink()

    with pytest.raises(SourceError, match=rf"{10:020d}\.log: .* the file is not there"):
        read(remote, 0, 40)


def test_offset_beyond_the_logs_end_is_an_error_that_names_both(server: OneServer) -> None:
    server.batches = [batch(0)]

    with pytest.raises(OffsetsBeyondLogError, match=r"from offset 50.*end at 10"):
        read(server, 50, 60)
