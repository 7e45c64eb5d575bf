from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from lakeward.errors import CorruptFileError
from lakeward.model.checkpoints import (
    BlockedEvent,
    CheckpointRef,
    LeaseCopy,
    Origin,
    PartFile,
    RoundSnapshot,
    SplitProgress,
    SubtaskSnapshot,
)
from lakeward.model.exchange import ChannelState, ExchangeState, KeptRows, OpenRows, Segment, Side
from lakeward.model.identity import Incarnation
from lakeward.model.results import LakeFile, WriteResult
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import TableBucket, TablePath, in_order
from lakeward.storage.checkpoint_format import (
    Head,
    Metadata,
    decode_head,
    decode_metadata,
    decode_part,
    encode_metadata,
    encode_part,
)
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.records import is_torn, pack, unpack
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import (
    FIRST,
    LEASE,
    PATH,
    batches,
    exchange_snapshot,
    reference,
    round_snapshot,
    subtask_snapshot,
)
from lakeward_testing.clock import FakeClock

pytestmark = pytest.mark.slow

LONG = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**63 - 1)
SMALL = st.integers(0, 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
SECONDS = st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=3)
BUCKETS = st.builds(TableBucket, COUNT, st.none() | LONG, SMALL)
PARTITION = st.lists(TEXT, max_size=2).map(tuple)
LOGS = st.builds(LogSplit, TEXT, BUCKETS, PARTITION, LONG, LONG)
SPLITS = LOGS | st.builds(SnapshotSplit, TEXT, BUCKETS, PARTITION, COUNT, LONG)
FILES = st.lists(st.builds(LakeFile, TEXT, TEXT, COUNT, COUNT, st.binary(max_size=12)), max_size=2).map(tuple)
COUNTED = st.none() | COUNT
RESULTS = st.builds(WriteResult, TEXT, BUCKETS, LONG, LONG, COUNT, FILES, SECONDS, COUNTED, COUNTED)
PROGRESS = st.builds(SplitProgress, SPLITS, LONG, FILES, COUNT, LONG, SECONDS, COUNTED, COUNTED)
ORIGINS = st.builds(Origin, SMALL, SMALL, SMALL, COUNT)
BLOCKED = st.builds(BlockedEvent, ORIGINS, RESULTS, st.none() | ORIGINS)


def some(one: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(one, max_size=3).map(tuple)


KEPT = st.none() | st.builds(KeptRows, SMALL, SMALL, COUNT, COUNT)
SEGMENTS = st.builds(Segment, TEXT, COUNT, COUNT, st.integers(0, 2**32 - 1), KEPT)
CHANNELS = some(st.builds(ChannelState, SMALL, SMALL, st.sampled_from(Side), SEGMENTS))
EXCHANGES = st.builds(
    ExchangeState,
    subtask=SMALL,
    subtasks=SMALL,
    files=FILES,
    rows=COUNT,
    left_out=COUNT,
    open_rows=some(st.builds(OpenRows, st.binary(max_size=12), some(SEGMENTS))),
    channels=CHANNELS,
    unaligned=st.booleans(),
    blocked_s=st.floats(0, allow_infinity=False),
)
SUBTASKS = st.builds(SubtaskSnapshot, SMALL, SMALL, some(PROGRESS), some(BLOCKED), st.none() | EXCHANGES)
LEASES = st.builds(LeaseCopy, TEXT, TEXT, st.none() | st.binary(max_size=40))
PARTS = some(st.builds(PartFile, SMALL, SMALL, TEXT, COUNT, st.integers(0, 2**32 - 1)))
STARTS = st.builds(Incarnation, st.just("svc"), COUNT, st.from_regex(r"[0-9a-f]{16}", fullmatch=True))


@st.composite
def metadata(draw: st.DrawFn) -> Metadata:
    start, table_id, epoch = draw(STARTS), draw(COUNT), draw(LONG)
    coordinator = RoundSnapshot(
        incarnation=str(start),
        number=draw(SMALL),
        path=draw(st.builds(TablePath, TEXT, TEXT)),
        table_id=table_id,
        epoch=epoch,
        schema_id=draw(SMALL),
        base_snapshot=draw(st.none() | LONG),
        base_commit=draw(st.none() | LONG),
        step=draw(SMALL),
        splits=draw(some(SPLITS)),
        before=in_order(draw(st.dictionaries(BUCKETS, LONG, max_size=3))),
        behind=draw(st.booleans()),
        finished=draw(some(RESULTS)),
        committed=tuple(sorted(draw(st.frozensets(TEXT, max_size=3)))),
        progress=draw(some(PROGRESS)),
    )
    ref = CheckpointRef("svc", str(start), table_id, epoch, draw(SMALL))
    return Metadata(Head(ref, coordinator.path, draw(COUNT), draw(PARTS)), coordinator, draw(st.none() | LEASES))


@given(metadata())
@settings(max_examples=300, deadline=None)
def test_any_metadata_is_read_back_as_it_was_written(written: Metadata) -> None:
    assert decode_metadata(encode_metadata(written), "f", written.head.ref) == written
    assert decode_head(encode_metadata(written), "f", written.head.ref) == written.head


@given(SUBTASKS)
@settings(max_examples=300, deadline=None)
def test_any_part_is_read_back_as_it_was_written(snapshot: SubtaskSnapshot) -> None:
    data, part = encode_part(reference(), snapshot, "p")
    assert decode_part(data, "f", reference(), part) == snapshot


@given(st.dictionaries(BUCKETS, LONG, max_size=3))
@settings(max_examples=50, deadline=None)
def test_the_same_offsets_have_the_same_bytes_in_whatever_order_they_are(offsets: dict[TableBucket, int]) -> None:
    turned = dict(reversed(list(offsets.items())))
    assert msgspec.msgpack.encode(in_order(turned)) == msgspec.msgpack.encode(in_order(offsets))


REF = reference()
SMALL_ROUND = structs.replace(round_snapshot(REF), splits=(), finished=(), progress=(), committed=("a",))
WITH = Metadata(Head(REF, PATH, 5, (PartFile(0, 1, "part-0-1", 9, 7),)), SMALL_ROUND, LEASE)
GATHERED = replace(WITH, coordinator=structs.replace(WITH.coordinator, gathered=True))
METADATA = {2: encode_metadata(WITH), 1: encode_metadata(replace(WITH, lease=None))}
PART_DATA, PART = encode_part(REF, structs.replace(subtask_snapshot(), blocked=()), "part-0-1")
BESIDE = tuple(Segment(f"svc/{FIRST}/7-3/segments/1-0-1-{n}.arrow", 5, 1352, 3060327600) for n in (0, 1))
EXCHANGE_DATA, EXCHANGE_PART = encode_part(REF, exchange_snapshot(*BESIDE), "part-0-1")
SHARES = (structs.replace(BESIDE[0], kept=KeptRows(32, 64, 2, 3)), BESIDE[1])
SHARES_DATA, SHARES_PART = encode_part(REF, exchange_snapshot(*SHARES), "part-0-1")


def read(kind: str, data: bytes) -> object:
    if kind == "shares":
        return decode_part(data, "/chk/file", REF, SHARES_PART)
    if kind == "part":
        return decode_part(data, "/chk/file", REF, PART)
    if kind == "exchange":
        return decode_part(data, "/chk/file", REF, EXCHANGE_PART)
    return decode_metadata(data, "/chk/file", REF)


WHOLE = [("metadata", METADATA[1]), ("metadata", METADATA[2]), ("part", PART_DATA), ("exchange", EXCHANGE_DATA)]
WHOLE += [("shares", SHARES_DATA), ("metadata", encode_metadata(GATHERED))]
BY_KIND = pytest.mark.parametrize(("kind", "whole"), WHOLE, ids=["1", "2", "part", "exchange", "shares", "3"])


@BY_KIND
def test_each_single_byte_that_changes_is_detected(kind: str, whole: bytes) -> None:
    assert read(kind, whole)
    for position in range(len(whole)):
        for mask in (0x01, 0x02, 0x03, 0x10, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[position] ^= mask
            with pytest.raises(CorruptFileError, match=r"^/chk/file: expected "):
                read(kind, bytes(damaged))


@BY_KIND
def test_each_cut_and_each_byte_too_many_is_detected(kind: str, whole: bytes) -> None:
    for end in range(len(whole)):
        with pytest.raises(CorruptFileError, match=r"^/chk/file: expected "):
            read(kind, whole[:end])
    for more in (b"\x00", b"LKWD", whole):
        with pytest.raises(CorruptFileError, match=r"^/chk/file: expected "):
            read(kind, whole + more)


@BY_KIND
def test_each_byte_that_is_left_out_is_detected(kind: str, whole: bytes) -> None:
    for position in range(len(whole)):
        with pytest.raises(CorruptFileError, match=r"^/chk/file: expected "):
            read(kind, whole[:position] + whole[position + 1 :])


def test_a_beginning_is_torn_and_a_whole_or_changed_file_is_not() -> None:
    whole = METADATA[2]
    assert all(is_torn(whole[:end]) for end in range(len(whole)))
    assert not is_torn(whole)
    assert not is_torn(whole + b"\x00")
    assert not is_torn(whole[:20] + b"\xff" + whole[21:])
    assert not is_torn(whole[:20] + b"\xff" + whole[21:-1])
    assert not is_torn(b"PAR1" + whole[4:])
    assert not is_torn(b"PA")


@pytest.mark.parametrize("version", [0, 4, 65535])
def test_a_version_that_is_not_known_is_refused(version: int) -> None:
    _, parts = unpack(METADATA[2], "f", {2: 3})
    with pytest.raises(CorruptFileError, match=rf"^/chk/file: expected a format version among .*, found {version}$"):
        read("metadata", pack(version, parts))
    with pytest.raises(CorruptFileError, match=rf"found {version}$"):
        unpack(pack(version, ()), "/chk/file", {1: 0})


@pytest.mark.parametrize(
    "parts",
    [(), (b"\x80",), (b"\xc1", b"\x80"), (b"\x80", b"\x80"), (b"\x80", b"\x80", b"\x80")],
    ids=["none", "one", "no msgpack", "nothing in it", "one too many"],
)
def test_a_whole_record_of_something_else_is_refused(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(CorruptFileError, match=r"^/chk/file: expected "):
        read("metadata", pack(1, parts))


def test_the_whole_part_of_another_is_refused() -> None:
    """Another checkpoint's, another attempt's, and one that was written anew after the checkpoint had completed."""
    assert decode_part(PART_DATA, "f", REF, PART).subtask == PART.subtask
    for ref, part in [
        (reference(2), PART),
        (REF, replace(PART, subtask=9)),
        (REF, replace(PART, task_attempt=9)),
        (REF, replace(PART, crc=PART.crc ^ 1)),
    ]:
        with pytest.raises(CorruptFileError, match=r"^/chk/file: expected "):
            decode_part(PART_DATA, "/chk/file", ref, part)


@pytest.mark.parametrize("other", [replace(REF, table_id=99), replace(REF, epoch=99)], ids=["table", "epoch"])
def test_the_round_of_another_is_refused(other: CheckpointRef) -> None:
    stray = replace(WITH, head=msgspec.structs.replace(WITH.head, ref=other))
    with pytest.raises(CorruptFileError, match=r"^/chk/file: expected a snapshot of a round of .*, found "):
        decode_metadata(encode_metadata(stray), "/chk/file", other)


def test_a_field_of_a_later_release_is_passed_over() -> None:
    """So that one more field needs no new version."""
    _, (head, coordinator) = unpack(METADATA[1], "f", {1: 2})
    more = msgspec.msgpack.encode({**msgspec.msgpack.decode(coordinator), "colour": "blue"})
    assert read("metadata", pack(1, (head, more))) == replace(WITH, lease=None)


def test_nothing_of_it_is_pickle() -> None:
    for data in (*METADATA.values(), PART_DATA, EXCHANGE_DATA):
        _, parts = unpack(data, "f", {1: 2, 2: 3})
        assert all(isinstance(msgspec.msgpack.decode(part), dict) for part in parts)


GOLDEN_1 = (
    "4c4b574400010002000000bec918175a84a372656685a773657276696365a3737663ab696e6361726e6174696f6eb9737663"
    "2d313030302d30303030303030303030303030306161a87461626c655f696407a565706f636803a66e756d62657201a47061"
    "746882a86461746162617365a473686f70a57461626c65a66f7264657273ac636f6d706c657465645f6d7305a57061727473"
    "9185a77375627461736b00ac7461736b5f617474656d707401a46e616d65a8706172742d302d31aa73697a655f6279746573"
    "09a363726307000000db5045556b8fab696e6361726e6174696f6eb97376632d313030302d30303030303030303030303030"
    "306161a66e756d62657201a47061746882a86461746162617365a473686f70a57461626c65a66f7264657273a87461626c65"
    "5f696407a565706f636803a9736368656d615f696401ad626173655f736e617073686f74cf4000000000000000ab62617365"
    "5f636f6d6d6974c0a47374657002a673706c69747390a66265666f726592929307c00064929307030100a6626568696e64c3"
    "a866696e697368656490a9636f6d6d697474656491a161a870726f677265737390"
)
GOLDEN_2 = (
    "4c4b574400020003000000bec918175a84a372656685a773657276696365a3737663ab696e6361726e6174696f6eb97376632d313030302d"
    "30303030303030303030303030306161a87461626c655f696407a565706f636803a66e756d62657201a47061746882a86461746162617365"
    "a473686f70a57461626c65a66f7264657273ac636f6d706c657465645f6d7305a570617274739185a77375627461736b00ac7461736b5f61"
    "7474656d707401a46e616d65a8706172742d302d31aa73697a655f627974657309a363726307000000db5045556b8fab696e6361726e6174"
    "696f6eb97376632d313030302d30303030303030303030303030306161a66e756d62657201a47061746882a86461746162617365a473686f"
    "70a57461626c65a66f7264657273a87461626c655f696407a565706f636803a9736368656d615f696401ad626173655f736e617073686f74"
    "cf4000000000000000ab626173655f636f6d6d6974c0a47374657002a673706c69747390a66265666f726592929307c00064929307030100"
    "a6626568696e64c3a866696e697368656490a9636f6d6d697474656491a161a870726f677265737390000000448a446cae83a76261636b65"
    "6e64a6736572766572a86c656173655f6964bb7376632d313030302d303030303030303030303030303061612d31a57374617465c407006c"
    "65617365ff"
)
OLD = {1: GOLDEN_1, 2: GOLDEN_2}
"""What releases up to 7e3f9db wrote: the map of a round had the shortest head that its 15 entries can have."""
SHORT, LONG_HEAD = "db5045556b8f", "dd011c5588de000f"
"""Length, checksum and head of that map: as they were, and as they are."""
GOLDEN = {version: data.replace(SHORT, LONG_HEAD) for version, data in OLD.items()}
GOLDEN_PART = (
    "4c4b5744000100020000004c14d4645885a773657276696365a3737663ab696e6361726e6174696f6eb97376632d31303030"
    "2d30303030303030303030303030306161a87461626c655f696407a565706f636803a66e756d6265720100000167127623b5"
    "84a77375627461736b00ac7461736b5f617474656d707401a870726f67726573739186a573706c697486a46b696e64a8736e"
    "617073686f74a873706c69745f6964b0372d332d312d736e617073686f742d35a66275636b657493070301a9706172746974"
    "696f6e91a4656d6561ab736e617073686f745f696405aa6c6f675f6f6666736574cd0fa0a8706f736974696f6ecd04d2a566"
    "696c65739285a470617468b9772f646174612f706172742d30303030302e70617271756574a46b696e64a464617461a4726f"
    "7773cd0269aa73697a655f6279746573ce00015f90a664657461696cc4049301020385a470617468b9772f646174612f7061"
    "72742d30303030302e70617271756574a46b696e64a464617461a4726f7773cd0269aa73697a655f6279746573ce00015f90"
    "a664657461696cc40493010203a4726f7773cd04d2b06d61785f74696d657374616d705f6d73ffa974696d696e67735f7380"
    "a7626c6f636b656490"
)

GOLDEN_EXCHANGE = (
    "4c4b5744000100020000004c14d4645885a773657276696365a3737663ab696e6361726e6174696f6eb97376632d31303030"
    "2d30303030303030303030303030306161a87461626c655f696407a565706f636803a66e756d62657201000001dcea3550d6"
    "85a77375627461736b00ac7461736b5f617474656d707401a870726f677265737390a7626c6f636b656490a865786368616e"
    "676589a77375627461736b00a87375627461736b7302a566696c65739185a470617468b9772f646174612f706172742d3030"
    "3030302e70617271756574a46b696e64a464617461a4726f7773cd0269aa73697a655f6279746573ce00015f90a664657461"
    "696cc40493010203a4726f77730ca86c6566745f6f757401a96f70656e5f726f77739182a9706172746974696f6ec4050165"
    "6d6561a87365676d656e74739184a46e616d65d9387376632f7376632d313030302d30303030303030303030303030306161"
    "2f372d332f7365676d656e74732f312d302d312d302e6172726f77a4726f777305aa73697a655f6279746573cd0548a36372"
    "63ceb668e4b0a86368616e6e656c739184a870726f647563657201a8636f6e73756d657200a473696465a2696ea77365676d"
    "656e7484a46e616d65d9387376632f7376632d313030302d303030303030303030303030303061612f372d332f7365676d65"
    "6e74732f312d302d312d312e6172726f77a4726f777305aa73697a655f6279746573cd0548a3637263ceb668e4b0a9756e61"
    "6c69676e6564c3a9626c6f636b65645f73cb3fe0000000000000"
)
GOLDEN_SHARES = (
    "4c4b5744000200020000004c14d4645885a773657276696365a3737663ab696e6361726e6174696f6eb97376632d31303030"
    "2d30303030303030303030303030306161a87461626c655f696407a565706f636803a66e756d626572010000020bc4328313"
    "85a77375627461736b00ac7461736b5f617474656d707401a870726f677265737390a7626c6f636b656490a865786368616e"
    "676589a77375627461736b00a87375627461736b7302a566696c65739185a470617468b9772f646174612f706172742d3030"
    "3030302e70617271756574a46b696e64a464617461a4726f7773cd0269aa73697a655f6279746573ce00015f90a664657461"
    "696cc40493010203a4726f77730ca86c6566745f6f757401a96f70656e5f726f77739182a9706172746974696f6ec4050165"
    "6d6561a87365676d656e74739185a46e616d65d9387376632f7376632d313030302d30303030303030303030303030306161"
    "2f372d332f7365676d656e74732f312d302d312d302e6172726f77a4726f777305aa73697a655f6279746573cd0548a36372"
    "63ceb668e4b0a46b65707484ab66697273745f67726f757020a9656e645f67726f757040a966697273745f726f7702a4726f"
    "777303a86368616e6e656c739184a870726f647563657201a8636f6e73756d657200a473696465a2696ea77365676d656e74"
    "84a46e616d65d9387376632f7376632d313030302d303030303030303030303030303061612f372d332f7365676d656e7473"
    "2f312d302d312d312e6172726f77a4726f777305aa73697a655f6279746573cd0548a3637263ceb668e4b0a9756e616c6967"
    "6e6564c3a9626c6f636b65645f73cb3fe0000000000000"
)
GOLDEN_ROWS = (
    "ffffffffa80000001000000000000a000c000600050008000a000000000104000c0000000800080000000400080000000400"
    "0000020000004400000004000000d4ffffff00000105100000001c0000000400000000000000040000006e616d6500000000"
    "0400040004000000100014000800060007000c00000010001000000000000102100000001c00000004000000000000000200"
    "00006964000008000c0008000700080000000000000140000000ffffffff08010000180000000000000000000e001c000600"
    "0500080010000c000e000000000304005400000010000000300000000000000000000000010000000c00000008000c000400"
    "080008000000180000000400000008000000633761366265656300000000030000006372630000000a0018000c0004000800"
    "0a0000006c000000100000000200000000000000000000000500000000000000000000000000000000000000000000000000"
    "000010000000000000001000000000000000000000000000000010000000000000000c000000000000002000000000000000"
    "0c00000000000000000000000200000002000000000000000000000000000000020000000000000000000000000000000000"
    "000000000000010000000000000000000000060000000c000000000000006e616d6520306e616d65203000000000ffffffff"
    "00000000"
)


@pytest.mark.parametrize("version", [1, 2])
def test_metadata_has_these_bytes(version: int) -> None:
    """Old checkpoints are read for ever: change a version's bytes by adding a version."""
    assert METADATA[version].hex() == GOLDEN[version]
    for golden in (GOLDEN[version], OLD[version]):
        assert read("metadata", bytes.fromhex(golden)) == replace(WITH, lease=LEASE if version == 2 else None)


def test_a_part_has_these_bytes() -> None:
    assert PART_DATA.hex() == GOLDEN_PART
    assert read("part", bytes.fromhex(GOLDEN_PART)) == structs.replace(subtask_snapshot(), blocked=())


def test_a_part_of_an_exchange_has_these_bytes() -> None:
    assert EXCHANGE_DATA.hex() == GOLDEN_EXCHANGE
    assert read("exchange", bytes.fromhex(GOLDEN_EXCHANGE)) == exchange_snapshot(*BESIDE)


def test_a_part_that_names_a_share_of_a_segment_has_these_bytes() -> None:
    """Version 2: a release that knows only whole segments must not restore it."""
    assert SHARES_DATA.hex() == GOLDEN_SHARES
    assert read("shares", bytes.fromhex(GOLDEN_SHARES)) == exchange_snapshot(*SHARES)
    with pytest.raises(CorruptFileError, match=r"format version among .*1.*, found 2"):
        unpack(SHARES_DATA, "/chk/file", {1: 2})


def test_rows_beside_a_checkpoint_of_these_bytes_are_read(tmp_path: Path) -> None:
    """Another release of Arrow may write the same rows differently."""
    data, files = bytes.fromhex(GOLDEN_ROWS), SmallFiles(str(tmp_path))
    files.write(BESIDE[0].name, data)
    segment = structs.replace(BESIDE[0], rows=2, size_bytes=len(data), crc=zlib.crc32(data))
    assert tuple(CheckpointFiles(files, FakeClock()).read_segment(segment)) == batches(2)


def recovered_snapshot() -> SubtaskSnapshot:
    """Make the part of a subtask in its recovery: rows it has written, a restored channel, and what came meanwhile."""
    memory, rest, restored, live = (
        structs.replace(BESIDE[0], name=f"svc/{FIRST}/7-3/segments/1-0-1-{number}.arrow", rows=2) for number in range(4)
    )
    state = ExchangeState(
        subtask=0,
        subtasks=2,
        rows=12,
        open_rows=(OpenRows(b"\x01emea", (memory, rest)),),
        channels=(
            ChannelState(5 % 2, 0, Side.IN, restored),
            ChannelState(1, 0, Side.IN, live),
            ChannelState(0, 1, Side.OUT, live),
        ),
        unaligned=True,
        blocked_s=0.5,
    )
    return SubtaskSnapshot(0, 1, (), (), state)


GOLDEN_RECOVERED = (
    "4c4b5744000100020000004c14d4645885a773657276696365a3737663ab696e6361726e6174696f6eb97376632d31303030"
    "2d30303030303030303030303030306161a87461626c655f696407a565706f636803a66e756d62657201000002efa86e9b07"
    "85a77375627461736b00ac7461736b5f617474656d707401a870726f677265737390a7626c6f636b656490a865786368616e"
    "676589a77375627461736b00a87375627461736b7302a566696c657390a4726f77730ca86c6566745f6f757400a96f70656e"
    "5f726f77739182a9706172746974696f6ec40501656d6561a87365676d656e74739284a46e616d65d9387376632f7376632d"
    "313030302d303030303030303030303030303061612f372d332f7365676d656e74732f312d302d312d302e6172726f77a472"
    "6f777302aa73697a655f6279746573cd0548a3637263ceb668e4b084a46e616d65d9387376632f7376632d313030302d3030"
    "30303030303030303030303061612f372d332f7365676d656e74732f312d302d312d312e6172726f77a4726f777302aa7369"
    "7a655f6279746573cd0548a3637263ceb668e4b0a86368616e6e656c739384a870726f647563657201a8636f6e73756d6572"
    "00a473696465a2696ea77365676d656e7484a46e616d65d9387376632f7376632d313030302d303030303030303030303030"
    "303061612f372d332f7365676d656e74732f312d302d312d322e6172726f77a4726f777302aa73697a655f6279746573cd05"
    "48a3637263ceb668e4b084a870726f647563657201a8636f6e73756d657200a473696465a2696ea77365676d656e7484a46e"
    "616d65d9387376632f7376632d313030302d303030303030303030303030303061612f372d332f7365676d656e74732f312d"
    "302d312d332e6172726f77a4726f777302aa73697a655f6279746573cd0548a3637263ceb668e4b084a870726f6475636572"
    "00a8636f6e73756d657201a473696465a36f7574a77365676d656e7484a46e616d65d9387376632f7376632d313030302d30"
    "3030303030303030303030303061612f372d332f7365676d656e74732f312d302d312d332e6172726f77a4726f777302aa73"
    "697a655f6279746573cd0548a3637263ceb668e4b0a9756e616c69676e6564c3a9626c6f636b65645f73cb3fe00000000000"
    "00"
)


def test_a_part_that_a_recovery_writes_has_these_bytes() -> None:
    """Two segments of one open file, and two of one channel: first what was restored, then what came meanwhile."""
    data, part = encode_part(REF, recovered_snapshot(), "part-0-1")
    assert data.hex() == GOLDEN_RECOVERED
    assert decode_part(bytes.fromhex(GOLDEN_RECOVERED), "f", REF, part) == recovered_snapshot()
