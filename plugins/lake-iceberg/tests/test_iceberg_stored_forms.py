"""What the lake stores for later starts has the bytes that commit 7e3f9db wrote, and its deletion vectors later."""

from __future__ import annotations

import msgspec

from lakeward.model.lake_offsets import pack_offsets, unpack_offsets
from lakeward.model.tables import TableBucket
from lakeward_lake_iceberg.detail import FileDetail, Vector, pack_detail, unpack_detail
from lakeward_lake_iceberg.expiry_plan import _PLANS, _Plan
from lakeward_lake_iceberg.partitioner import partition_key, partition_values

MOVED = "the stored format has moved: add a reader of the old one, and a new golden value"
DETAIL = FileDetail(
    partition=("emea", 3, None, b"\x01"),
    spec_id=2,
    column_sizes={1: 40},
    value_counts={1: 5},
    null_counts={2: 1},
    nan_counts={3: 1},
    lower={1: b"\x00"},
    upper={1: b"\xff"},
    split_offsets=(4, 900),
    references="w/a.parquet",
    replaces=("w/b-deletes.parquet",),
    base_snapshot=2**62,
    writer=(1, b"\x91\x03"),
)
GOLDEN_DETAIL = (
    "8da9706172746974696f6e94a4656d656103c0c40101a7737065635f696402ac636f6c756d6e5f73697a6573810128ac7661"
    "6c75655f636f756e7473810105ab6e756c6c5f636f756e7473810201aa6e616e5f636f756e7473810301a56c6f7765728101"
    "c40100a575707065728101c401ffad73706c69745f6f6666736574739204cd0384aa7265666572656e636573ab772f612e70"
    "617271756574a87265706c6163657391b3772f622d64656c657465732e70617271756574ad626173655f736e617073686f74"
    "cf4000000000000000a67772697465729201c4029103"
)
VECTOR = FileDetail(
    partition=(), spec_id=0, replaces=("w/b-deletes.parquet", Vector("w/c.puffin", 4, 42)), vector=(4, 48)
)
GOLDEN_VECTOR = (
    "84a9706172746974696f6e90a7737065635f696400a87265706c6163657392b3772f622d64656c657465732e706172717565"
    "7493aa772f632e70756666696e042aa6766563746f72920430"
)
PARTITION = ("emea", 19_000, None, b"\x01", True)
GOLDEN_PARTITION = "95a4656d6561cd4a38c0c40101c3"
OFFSETS = {TableBucket(7, None, 0): 1200, TableBucket(7, 12, 1): 1187}
GOLDEN_OFFSETS = '{"version":1,"table_id":7,"offsets":[[null,0,1200],[12,1,1187]]}'
PLAN = _Plan(1, 42, [{"snapshot-id": 17, "manifest-list": "w/snap.avro"}])
GOLDEN_PLAN = b'{"version":1,"head":42,"snapshots":[{"snapshot-id":17,"manifest-list":"w/snap.avro"}]}'


def test_what_a_checkpoint_keeps_of_a_file_has_these_bytes() -> None:
    assert pack_detail(DETAIL).hex() == GOLDEN_DETAIL, MOVED
    assert unpack_detail(bytes.fromhex(GOLDEN_DETAIL)) == DETAIL
    assert pack_detail(VECTOR).hex() == GOLDEN_VECTOR, MOVED
    assert unpack_detail(bytes.fromhex(GOLDEN_VECTOR)) == VECTOR
    told = {*msgspec.msgpack.decode(pack_detail(DETAIL)), *msgspec.msgpack.decode(pack_detail(VECTOR))}
    assert told == {*FileDetail.__struct_fields__}, MOVED


def test_the_partition_of_open_rows_has_these_bytes() -> None:
    assert partition_key(PARTITION).hex() == GOLDEN_PARTITION, MOVED
    assert partition_values(bytes.fromhex(GOLDEN_PARTITION)) == PARTITION


def test_the_offsets_of_a_commit_have_this_text() -> None:
    assert pack_offsets(7, OFFSETS) == GOLDEN_OFFSETS, MOVED
    assert unpack_offsets(GOLDEN_OFFSETS, "golden") == OFFSETS


def test_the_plan_of_an_expiry_has_this_text() -> None:
    assert msgspec.json.encode(PLAN) == GOLDEN_PLAN, MOVED
    assert _PLANS.decode(GOLDEN_PLAN) == PLAN
