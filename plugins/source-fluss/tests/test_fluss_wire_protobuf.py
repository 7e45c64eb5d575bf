from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.errors import ProtocolError, UsageError
from lakeward_source_fluss.wire.messages import (
    ApiVersionsRequest,
    FetchLogResponse,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    PbFetchLogRespForBucket,
    PbFetchLogRespForTable,
    PbTableBucket,
    PbTablePath,
)
from lakeward_source_fluss.wire.protobuf import MAX_ELEMENTS, Message, decode, encode
from lakeward_source_fluss.wire.tiering_messages import CommitLakeTableSnapshotResponse, LakeTieringHeartbeatRequest
from lakeward_source_fluss_kit.messages import (
    LegacyCommitLakeTableSnapshotResponse,
    LegacyPbCommitLakeTableSnapshotRespForTable,
    PbPutKvRespForBucket,
    all_messages,
)

CLASSES: list[type[Message]] = all_messages()
ENOUGH = encode(
    FetchLogResponse(
        tables_resp=(
            PbFetchLogRespForTable(
                table_id=1, buckets_resp=(PbFetchLogRespForBucket(bucket_id=0, high_watermark=7, records=b"records"),)
            ),
        )
    )
)


def test_the_first_request_of_the_documented_example_is_written_as_documented() -> None:
    body = encode(ApiVersionsRequest(client_software_name="fluss", client_software_version="0.1.0"))
    assert body.hex() == "0a05666c7573731205302e312e30"


def test_zero_and_absent_are_different_values() -> None:
    with_partition = PbTableBucket(table_id=0, partition_id=0, bucket_id=0)
    without = PbTableBucket(table_id=0, bucket_id=0)
    assert encode(with_partition) != encode(without)
    assert decode(PbTableBucket, encode(with_partition)) == with_partition
    assert decode(PbTableBucket, encode(without)) == without


@pytest.mark.parametrize("value", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_numbers_of_64_bits_come_back(value: int) -> None:
    assert decode(PbTableBucket, encode(PbTableBucket(table_id=value, bucket_id=1))).table_id == value


@pytest.mark.parametrize("bucket", [2**31, -(2**31) - 1, True, "1", None, 1.0])
def test_a_wrong_number_is_refused_before_it_is_sent(bucket: Any) -> None:  # noqa: ANN401  # wrong on purpose
    with pytest.raises(UsageError, match=r"PbTableBucket\.bucket_id"):
        encode(PbTableBucket(table_id=1, bucket_id=bucket))


def test_text_that_utf8_cannot_write_is_refused_before_it_is_sent() -> None:
    with pytest.raises(UsageError, match="database_name"):
        encode(PbTablePath(database_name="\ud800", table_name="t"))


def test_a_message_of_another_class_is_refused_before_it_is_sent() -> None:
    wrong: Any = PbTableBucket(table_id=1, bucket_id=1)
    with pytest.raises(UsageError, match="table_path"):
        encode(MetadataRequest(table_path=(wrong,)))


def test_a_negative_int32_of_five_bytes_is_read() -> None:
    assert decode(PbTableBucket, bytes.fromhex("0801 18ffffffff0f")).bucket_id == -1


def test_a_number_too_long_for_its_field_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="bucket_id"):
        decode(PbTableBucket, bytes.fromhex("0801 18808080808010"))


def test_a_missing_required_field_is_an_error() -> None:
    with pytest.raises(ProtocolError, match=r"PbTableBucket.*bucket_id"):
        decode(PbTableBucket, b"\x08\x01")


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    known = encode(PbTableBucket(table_id=5, bucket_id=6))
    unknown = bytes.fromhex("f80105 f90100000000000000f0 fa0103616263 fd0100000000")
    assert decode(PbTableBucket, unknown + known) == decode(PbTableBucket, known + unknown)


def test_repeated_numbers_are_read_packed_and_unpacked() -> None:
    packed = encode(ListOffsetsRequest(follower_server_id=-1, offset_type=1, table_id=1, bucket_id=(3, 300)))
    unpacked = packed.replace(bytes.fromhex("2a0303ac02"), bytes.fromhex("280328ac02"))
    assert packed != unpacked
    assert decode(ListOffsetsRequest, unpacked) == decode(ListOffsetsRequest, packed)


def test_forced_tables_are_written_unpacked_and_read_in_both_forms() -> None:
    assert encode(LakeTieringHeartbeatRequest(force_finished_tables=(1, 2))).hex() == "28012802"
    assert decode(LakeTieringHeartbeatRequest, bytes.fromhex("2a020102")).force_finished_tables == (1, 2)


def test_an_old_servers_commit_answer_has_other_numbers() -> None:
    old = bytes.fromhex("0a04 0807 1029")
    assert decode(LegacyCommitLakeTableSnapshotResponse, old).table_resp == (
        LegacyPbCommitLakeTableSnapshotRespForTable(table_id=7, error_code=41),
    )
    with pytest.raises(ProtocolError):
        decode(CommitLakeTableSnapshotResponse, old)


def test_a_float_comes_back() -> None:
    answer = PbPutKvRespForBucket(bucket_id=1, pressure=0.5)
    assert decode(PbPutKvRespForBucket, encode(answer)) == answer


@pytest.mark.parametrize("cut", range(1, len(ENOUGH)))
def test_a_truncated_answer_is_an_error(cut: int) -> None:
    with pytest.raises(ProtocolError):
        decode(FetchLogResponse, ENOUGH[:cut])


@pytest.mark.parametrize("body", ["00", "07", "0b", "0c", "f4ff", "ffffffffffffffffffffff01", "0affffffff0f"])
def test_garbage_is_an_error(body: str) -> None:
    with pytest.raises(ProtocolError):
        decode(MetadataResponse, bytes.fromhex(body))


def test_an_announced_length_allocates_nothing() -> None:
    announces_much = bytes.fromhex("0affffffff07") + b"\x00" * 16
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="expected 2147483647 bytes"):
        decode(MetadataResponse, announces_much)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_more_elements_than_any_cluster_has_are_refused() -> None:
    body = b"\x2a" + bytes.fromhex("c1843d") + b"\x01" * (MAX_ELEMENTS + 1)
    with pytest.raises(ProtocolError, match="at most 1000000"):
        decode(LakeTieringHeartbeatRequest, body)


@settings(deadline=None)
@given(message_class=st.sampled_from(CLASSES), body=st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_protocol_error(message_class: type[Message], body: bytes) -> None:
    try:
        message = decode(message_class, body)
    except ProtocolError:
        return
    assert decode(message_class, encode(message)) == message or "nan" in repr(message)
