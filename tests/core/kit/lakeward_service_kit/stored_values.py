"""A value of each stored format, with each of its fields set, and how its file is written and read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from lakeward.model.bad_rows import BadRows
from lakeward.model.bindings import Bindings, ServiceBinding
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
from lakeward.model.dead_letters import ReplayRequest
from lakeward.model.exchange import ChannelState, ExchangeState, KeptRows, OpenRows, Segment, Side
from lakeward.model.identity import REPLAY, UPKEEP, Incarnation, RoundId
from lakeward.model.results import LakeFile, WriteResult
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.status import (
    CheckpointReport,
    ExchangeReport,
    LakeAway,
    ReplayReport,
    RoundReport,
    ServiceReport,
    SubtaskReport,
    TableCondition,
    TableReport,
    UpkeepReport,
)
from lakeward.model.tables import TableBucket, TablePath
from lakeward.model.upkeep import FileCounts
from lakeward.observe import control, status_file
from lakeward.storage import commit_records, round_journal, service_state
from lakeward.storage.binding_files import BindingFiles
from lakeward.storage.checkpoint_format import (
    Head,
    Metadata,
    decode_metadata,
    decode_part,
    encode_metadata,
    encode_part,
)
from lakeward.storage.commit_records import CommitRecord, stored_offsets
from lakeward.storage.round_history import RoundHistory
from lakeward.storage.round_journal import PendingLetters, RoundJournal
from lakeward.storage.service_state import ServiceState, StoredTable
from lakeward.storage.small_files import SmallFiles

START = Incarnation("svc", 1_700_000_000_000, "00000000000000aa")
PATH = TablePath("shop", "orders")
REF = CheckpointRef("svc", str(START), 7, 3, 2)
PLAIN, PARTITIONED = TableBucket(7, None, 0), TableBucket(7, 12, 1)
MS = 1_700_000_000_123

LOG = LogSplit("b0-100", PLAIN, (), 100, 900)
SNAPSHOT = SnapshotSplit("p12-b1-s5", PARTITIONED, ("emea",), 5, 4000)
LIVE = SnapshotSplit("p12-b1-live", PARTITIONED, ("emea",), -1, 40, live=True)
FILE = LakeFile("w/data/a.parquet", "data", 617, 90_000, b"\x93\x01")
DELETES = LakeFile("w/data/a-deletes.parquet", "deletes", 3, 900)
DONE = WriteResult(LOG.split_id, PLAIN, 900, MS, 800, (FILE, DELETES), {"read": 1.0}, left_out=2, empty_offsets=4)
PROGRESS = (
    SplitProgress(LOG, 250, (FILE,), 150, MS, {"read": 0.25}, left_out=1, empty_offsets=3),
    SplitProgress(SNAPSHOT, 1234, (FILE,), 1234, -1),
    SplitProgress(LIVE, 0, (), 0, -1),
)
BLOCKED = (
    BlockedEvent(Origin(1, 0, 2, 4), DONE),
    BlockedEvent(Origin(2, 1, 3, 5), DONE, event_origin=Origin(1, 0, 1, 9)),
)
SEGMENTS = tuple(Segment(f"svc/{START}/7-3/segments/2-0-1-{number}.arrow", 5, 1352, 3060327600) for number in range(3))
BAD = BadRows(
    dropped=7, dead_letters=2, first="table t.log, bucket 7/0, offset 101, column 'at': expected a time, found 'never'"
)
WITH_BAD_ROWS = SubtaskSnapshot(0, 1, (structs.replace(PROGRESS[0], bad_rows=BAD),), ())
WITHOUT_EXCHANGE = SubtaskSnapshot(0, 1, PROGRESS, BLOCKED)
EXCHANGE = ExchangeState(
    subtask=0,
    subtasks=2,
    files=(FILE,),
    rows=12,
    left_out=1,
    open_rows=(OpenRows(b"[1]", SEGMENTS[:1]),),
    channels=(ChannelState(1, 0, Side.IN, SEGMENTS[1]), ChannelState(0, 1, Side.OUT, SEGMENTS[2])),
    unaligned=True,
    blocked_s=0.5,
)
SHARE = structs.replace(SEGMENTS[0], kept=KeptRows(32, 64, 2, 3))
WITH_EXCHANGE = SubtaskSnapshot(0, 1, PROGRESS[:1], (), EXCHANGE)
WITH_SHARES = structs.replace(
    WITH_EXCHANGE, exchange=structs.replace(EXCHANGE, channels=(ChannelState(1, 0, Side.OUT, SHARE),))
)
ROUND = RoundSnapshot(
    incarnation=str(START),
    number=1,
    path=PATH,
    table_id=7,
    epoch=3,
    schema_id=1,
    base_snapshot=2**62,
    base_commit=2**61,
    step=2,
    splits=(LOG, SNAPSHOT, LIVE),
    before=((PLAIN, 100), (PARTITIONED, 0)),
    behind=True,
    finished=(DONE,),
    committed=("w/data/a.parquet", "w/data/b.parquet"),
    progress=PROGRESS[:1],
)
METADATA = Metadata(Head(REF, PATH, MS, (PartFile(0, 1, "part-0-1", 455, 4711),)), ROUND, None)
WITH_LEASE = replace(
    METADATA,
    coordinator=structs.replace(ROUND, layout=("bucket(3, id)", "name")),
    lease=LeaseCopy("fluss", f"{START}-1", b"\x00lease\xff"),
)
NAMED = replace(METADATA, coordinator=structs.replace(ROUND, lake_path=TablePath("lake", "sales"), columns=("0:id",)))
GATHERED = replace(WITH_LEASE, coordinator=structs.replace(WITH_LEASE.coordinator, gathered=True), lease=None)
STATE = ServiceState(
    START,
    tables=(StoredTable(PATH, 7, 3, 1, 60.0, MS),),
    lease_ids=(f"{START}-1", "svc-1-00000000000000bb-3"),
    invalidated={7: "10 records were read; 9 rows are in its files"},
)
LETTERS = PendingLetters(2, (structs.replace(FILE, path="w/letters/a.parquet"),), ((None, 0, 900),), (("00ff", 17),))
JOURNAL = structs.replace(
    RoundJournal.begun(RoundId(START, 7, 3, 1), PATH, 2**62, 2**61, "w/data/round"),
    commits=(("00ff", 17), ("01ff", 2**60)),
    swept_ms=MS,
    missing_ms=MS + 1,
)
COMMITTED = CommitRecord(
    PATH, 7, 2**62, stored_offsets({PLAIN: 900, PARTITIONED: 4000}), MS, disregarded=17, accepted=True
)
LETTERS_JOURNAL = structs.replace(JOURNAL, letters_prefix="w/letters/round", letters=LETTERS)
NAMED_JOURNAL = structs.replace(JOURNAL, lake_path=TablePath("lake", "sales"))
UPKEEP_JOURNAL = structs.replace(
    RoundJournal.begun(RoundId(START, 7, UPKEEP, 1), PATH, 2**62, None, "w/data/upkeep"),
    commits=(("02ff", 2**61),),
    swept_ms=MS,
    writes_for_ms=600_000,
)
REPLAY_JOURNAL = structs.replace(
    RoundJournal.begun(RoundId(START, 7, REPLAY, 2), PATH, 2**62, 2**61, "w/data/replay"),
    commits=(("03ff", 2**59),),
    letters_prefix="w/letters/replay",
    replayed=bytes(range(32)),
)
RUNNING = RoundReport(
    round_name=f"{START}/7-3-1",
    outcome="running",
    started_ms=MS,
    ended_ms=MS + 1,
    rows=800,
    splits=3,
    splits_done=2,
    files=2,
    size_bytes=90_900,
    rows_per_s=400.0,
    snapshot_id=2**52,
    reason="late",
    timings_s={"read": 1.5},
    checkpoint=CheckpointReport(str(REF), MS, 0.5, 455, 1, "declined", "unaligned", 100, 200, 0.25),
    slots=2,
    slots_asked=3,
    exchange=ExchangeReport(
        sent_bytes=1,
        received_bytes=2,
        queued_bytes=3,
        credit_wait_s=0.5,
        skew=1.5,
        recovery="draining",
        recovery_bytes=4,
        recovered_bytes=5,
        spill_bytes=6,
        kept_spill_bytes=7,
        markers_missing=8,
        spill_places=("a disk",),
        spill_quota_bytes=9,
        first_checkpoint_s=0.25,
        timings_s={"encode": 0.5},
    ),
    subtasks=(SubtaskReport(0, 1, "golden", "reading", "b0-100", 1, 100, 2000, 0.5),),
    lag_rows=50,
    code="LW-301",
    table=str(PATH),
    table_id=7,
    kind="log",
    offsets={"7/0": 900},
    end_offset=900,
    launches=2,
    failovers=1,
    checkpoints=4,
    resumed_from=str(REF),
    complete_ms=MS,
    freshness_s=60.0,
)
ENDED = structs.replace(
    RUNNING,
    outcome="failed",
    kind="snapshots and log",
    ended_ms=MS + 5000,
    snapshot_id=2**62,
    reason="the disk is full",
    slots=0,
    slots_asked=0,
    subtasks=(),
)
BINDINGS = ServiceBinding("svc", {"shop.*": MS, "shop.orders": MS + 1}, shared=False)
CONTROL = control.Control(frozenset({"shop.halted"}), {"shop.orders": 1})
TABLE_CONTROL = control._TableDocument(1, "shop.orders", True, 1)
ASKED_CONTROL = control._TableDocument(1, "shop.orders", False, 0, 1, ReplayRequest(2, "name", "LW-406"))
REPORT = ServiceReport(
    service="svc",
    incarnation=str(START),
    pid=4711,
    state="serving",
    written_ms=MS,
    spark_ui="http://golden:4040",
    tables=(
        TableReport(
            path=str(PATH),
            table_id=7,
            status="running",
            message="late",
            lag_rows=100,
            lag_s=1.5,
            rounds=3,
            rows=800,
            round=RUNNING,
            condition=TableCondition("late", "two rounds failed", "look at the disk", MS),
            due_ms=MS + 2,
            failing_since_ms=MS + 3,
            never_tiered=True,
            failure="the disk is full",
            code="LW-301",
            freshness_s=60.0,
            complete_ms=MS + 4,
            committed_ms=MS + 5,
            queue_position=1,
            lake_files=12,
            layout="day(at); exchange none: each row stays with its reader",
            unread_kept_s=604_800.0,
            leased=2,
            ended={"failed": 2},
            upkeep=UpkeepReport("compaction", "failed", 2, 9, 9_900, MS + 7, 1, 5_000, MS + 8, "its executor died"),
            counts=FileCounts(12, 48_000, 9, 2, 30),
            lake_table="lake.sales",
            replay=ReplayReport(3, 2, "the catalog does not answer", MS + 9),
        ),
    ),
    lease_id=f"{START}-1",
    leased=2,
    releasing=1,
    lease_message="renewed late",
    held_for_checkpoints=1,
    snapshots_gone=1,
    host="golden",
    started_ms=MS - 5000,
    lake_away=LakeAway(MS, 1, "no answer"),
    lease_expires_ms=MS + 6,
    state_free_bytes=10 << 30,
)


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value, what gives the bytes of its file, and what reads them."""

    value: Any
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _through_root(name: str, write: Callable[[str, Any], object]) -> Callable[[Any], bytes]:
    """Return what writes a value below a state root, and gives the bytes of the file there."""

    def encode(value: object) -> bytes:
        with tempfile.TemporaryDirectory() as root:
            write(root, value)
            return (Path(root) / "svc" / name).read_bytes()

    return encode


def _from_root(name: str, read: Callable[[str], Any]) -> Callable[[bytes], Any]:
    """Return what puts bytes below a state root, and reads the value there."""

    def decode(data: bytes) -> object:
        with tempfile.TemporaryDirectory() as root:
            file = Path(root) / "svc" / name
            file.parent.mkdir()
            file.write_bytes(data)
            return read(root)

    return decode


def _write_control(root: str, _: object) -> None:
    control.pause(root, "svc", TablePath("shop", "halted"))
    control.pause(root, "svc", PATH)
    control.resume(root, "svc", PATH)


def _part(snapshot: SubtaskSnapshot) -> StoredValue:
    _, entry = encode_part(REF, snapshot, "part-0-1")
    return StoredValue(
        snapshot,
        lambda value: encode_part(REF, value, "part-0-1")[0],
        lambda data: decode_part(data, "golden", REF, entry),
    )


def _metadata(metadata: Metadata) -> StoredValue:
    return StoredValue(metadata, encode_metadata, lambda data: decode_metadata(data, "golden", REF))


def _state(state: ServiceState) -> StoredValue:
    return StoredValue(state, service_state.encode, lambda data: service_state.decode(data, "golden"))


STORED = {
    "service.state-1": _state(STATE),
    "service.state-2": _state(replace(STATE, lease_backend="fluss", lease_state=b"\x00lease\xff")),
    "journal": StoredValue(JOURNAL, round_journal.encode, lambda data: round_journal.decode(data, "golden")),
    "journal-letters": StoredValue(
        LETTERS_JOURNAL, round_journal.encode, lambda data: round_journal.decode(data, "golden")
    ),
    "journal-upkeep": StoredValue(
        UPKEEP_JOURNAL, round_journal.encode, lambda data: round_journal.decode(data, "golden")
    ),
    "journal-replay": StoredValue(
        REPLAY_JOURNAL, round_journal.encode, lambda data: round_journal.decode(data, "golden")
    ),
    "journal-2": StoredValue(NAMED_JOURNAL, round_journal.encode, lambda data: round_journal.decode(data, "golden")),
    "committed": StoredValue(COMMITTED, commit_records.encode, lambda data: commit_records.decode(data, "golden")),
    "_metadata-1": _metadata(METADATA),
    "_metadata-2": _metadata(WITH_LEASE),
    "_metadata-named": _metadata(NAMED),
    "_metadata-3": _metadata(GATHERED),
    "part-1": _part(WITHOUT_EXCHANGE),
    "part-bad-rows": _part(WITH_BAD_ROWS),
    "part-1-exchange": _part(WITH_EXCHANGE),
    "part-2": _part(WITH_SHARES),
    "rounds.jsonl": StoredValue(
        [ENDED],
        _through_root("rounds.jsonl", lambda root, value: RoundHistory(SmallFiles(root), "svc").add(*value)),
        _from_root("rounds.jsonl", lambda root: RoundHistory(SmallFiles(root), "svc").read()),
    ),
    "bindings.json": StoredValue(
        Bindings((BINDINGS,)),
        _through_root("bindings.json", lambda root, value: BindingFiles(SmallFiles(root)).write(value.services[0])),
        _from_root("bindings.json", lambda root: BindingFiles(SmallFiles(root)).read()),
    ),
    "control.json": StoredValue(
        CONTROL,
        _through_root("control.json", _write_control),
        _from_root("control.json", lambda root: control.read_control(root, "svc")),
    ),
    "control-of-a-table.json": StoredValue(TABLE_CONTROL, msgspec.json.encode, control._TABLE_DOCUMENTS.decode),
    "control-asked.json": StoredValue(ASKED_CONTROL, msgspec.json.encode, control._TABLE_DOCUMENTS.decode),
    "status.json": StoredValue(
        REPORT,
        _through_root("status.json", lambda root, value: status_file.write(root, "svc", value)),
        _from_root("status.json", lambda root: status_file.read(root, "svc")),
    ),
}
"""By the name of its golden file, which ends with the version where a format has several."""
