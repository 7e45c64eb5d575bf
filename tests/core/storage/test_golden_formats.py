"""What is stored has the form that golden files say, and what commit 7e3f9db stored is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import structs

from lakeward.model.bindings import ServiceBinding
from lakeward.model.checkpoints import CheckpointRef, CheckpointState, LeaseCopy, SplitProgress
from lakeward.model.exchange import Side
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.results import LakeFile
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.status import CheckpointReport, ExchangeReport
from lakeward.model.tables import TableBucket, TablePath
from lakeward.observe import status_file
from lakeward.observe.control import Control, read_control
from lakeward.storage.binding_files import BindingFiles
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.commit_records import CommitRecord, CommitRecords, stored_offsets
from lakeward.storage.newer_formats import refuse_newer
from lakeward.storage.records import MAGIC, unpack
from lakeward.storage.round_history import RoundHistory
from lakeward.storage.round_journal import JournalStore, RoundJournal
from lakeward.storage.segments import segments_of
from lakeward.storage.service_state import ServiceState, ServiceStateStore, StoredTable
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.golden import CURRENT, FIELDS, FORMATS, OLD, fields_of, unpack_world
from lakeward_service_kit.stored_values import ENDED, REPORT, STORED
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from lakeward.model.checkpoints import Checkpoint
    from lakeward.model.status import RoundReport, ServiceReport

NEWER = frozenset({
    "_metadata-3", "_metadata-named", "control-asked.json", "journal-2", "journal-letters", "journal-replay",
    "journal-upkeep", "part-bad-rows",
})  # fmt: skip
"""Values with what 7e3f9db did not know."""
MOVED = "the stored format has moved: add a reader of the old one, and a new golden file (see golden/README.md)"
FIRST = Incarnation("svc", 1_700_000_100_001, "0000000000000001")
LOG, KEYED = TablePath("t", "log"), TablePath("t", "keyed")
BUCKETS = TableBucket(1, None, 0), TableBucket(1, None, 1)


@pytest.mark.parametrize("name", STORED)
def test_a_format_is_written_as_its_golden_file_is(name: str) -> None:
    stored = STORED[name]
    found, golden = stored.encode(stored.value), (CURRENT / name).read_bytes()
    assert plain(found) == plain(golden), MOVED
    assert found == golden, MOVED


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_has_the_fields_and_types_of_its_golden_file(name: str) -> None:
    assert fields_of(FORMATS[name]) == json.loads(FIELDS.read_text(encoding="utf-8"))[name], MOVED


def test_the_golden_files_have_each_field_of_each_format() -> None:
    """A field that is left out where it has its default would not be seen to change."""
    written = {key for name in STORED for key in keys(plain((CURRENT / name).read_bytes()))}
    fields = {path.rpartition(".")[2] for kind in FORMATS.values() for path in fields_of(kind)}
    assert fields - written == set()


@pytest.mark.parametrize("name", [name for name in STORED if name not in NEWER])
def test_a_value_is_read_that_7e3f9db_wrote(name: str) -> None:
    changed = {"status.json": old_report, "rounds.jsonl": old_rounds}
    expected = changed[name]() if name in changed else STORED[name].value
    assert STORED[name].decode((OLD / "values" / name).read_bytes()) == expected


def plain(data: bytes) -> Any:  # noqa: ANN401 - whatever a file holds
    """Return what a file holds as built-in types, for a difference that can be read."""
    if data.startswith(MAGIC):
        version = data[4] << 8 | data[5]
        return version, [_plain_part(part) for part in unpack(data, "golden", {version: data[6] << 8 | data[7]})[1]]
    return msgspec.json.decode(data)


def _plain_part(part: bytes) -> Any:  # noqa: ANN401 - as above
    try:
        return msgspec.msgpack.decode(part)
    except msgspec.DecodeError:
        return part  # the lease backend's own


def keys(value: object) -> set[str]:
    """Return the names of all fields of a value, at any depth."""
    if isinstance(value, dict):
        return {str(key) for key in value}.union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list | tuple) else set()


def old_report() -> ServiceReport:
    """Return the report without what 7e3f9db did not know."""
    (table,) = REPORT.tables
    assert table.round is not None
    assert table.round.exchange is not None
    exchange = structs.replace(table.round.exchange, spill_places=(), spill_quota_bytes=0)
    running = structs.replace(
        table.round,
        **dict.fromkeys(("code", "table", "kind", "resumed_from"), ""),
        **dict.fromkeys(("table_id", "launches", "failovers", "checkpoints"), 0),
        **dict.fromkeys(("end_offset", "complete_ms", "freshness_s")),
        exchange=exchange,
        offsets={},
    )
    unknown = {"upkeep": None, "counts": None, "layout": "", "unread_kept_s": None, "leased": 0}
    unknown |= {"lake_table": "", "replay": None}
    table = structs.replace(table, round=running, code="", ended={}, **unknown)
    return structs.replace(REPORT, tables=(table,), lake_away=None, state_free_bytes=None)


def old_rounds() -> list[RoundReport]:
    """Return the round that has ended without what version 1 of its file did not have."""
    taken, moved = CheckpointReport(aborted=1), ExchangeReport(sent_bytes=4096)
    return [structs.replace(ENDED, rows_per_s=160.0, lag_rows=None, checkpoint=taken, exchange=moved)]


class Left:
    """What a killed service left of its state."""

    def __init__(self, root: Path) -> None:
        self.files = SmallFiles(str(root))
        self.store = CheckpointFiles(self.files, FakeClock())

    def state(self) -> ServiceState | None:
        return ServiceStateStore(self.files).load("svc")

    def journals(self) -> tuple[RoundJournal, ...]:
        return JournalStore(self.files, "svc").list()

    def newest(self) -> Checkpoint:
        info = self.store.newest("svc", 1)
        assert info is not None
        assert info.state is CheckpointState.COMPLETE, info.message
        return self.store.load(info.ref)


def left(name: str, folder: Path) -> Left:
    unpack_world(name, folder)
    return Left(folder / "state")


WORLDS = sorted(folder.name for folder in OLD.iterdir() if (folder / "world.zip").exists())


@pytest.mark.parametrize("name", WORLDS)
def test_everything_is_whole_that_a_killed_service_left(name: str, tmp_path: Path) -> None:
    found = left(name, tmp_path)
    refuse_newer(found.files, "svc")
    assert found.state() is not None
    assert found.journals()
    report = status_file.read(str(tmp_path / "state"), "svc")
    assert report is not None
    assert report.service == "svc"
    assert read_control(str(tmp_path / "state"), "svc") == Control(frozenset({"t.halted"}), {"t.resumed": 1})
    since_ms = 1_700_000_000_000
    binding = ServiceBinding("svc", {"t.log": since_ms, "t.keyed": since_ms})
    assert BindingFiles(found.files).read().services == (binding,)
    infos = found.store.list("svc")
    assert {info.state for info in infos} <= {CheckpointState.COMPLETE, CheckpointState.UNFINISHED}
    for info in infos:
        if info.state is CheckpointState.COMPLETE:
            checkpoint = found.store.load(info.ref)
            found.store.check_segments(checkpoint)
            for segment in segments_of(checkpoint):
                assert sum(batch.num_rows for batch in found.store.read_segment(segment)) == segment.rows


def test_a_round_of_a_log_table_is_read_as_it_was(tmp_path: Path) -> None:
    found = left("log", tmp_path)
    prefix, commit = f"lake/t.log/{FIRST}/1-2-1", 323223814654819149
    table = StoredTable(LOG, 1, 2, 0, 0.2, 1_700_000_100_902)
    assert found.state() == ServiceState(FIRST, (table,), lease_ids=(f"{FIRST}-1",))
    assert found.journals() == (RoundJournal.begun(RoundId(FIRST, 1, 2, 1), LOG, 71397151562584231, commit, prefix),)
    tiered = dict.fromkeys(BUCKETS, 10)
    assert CommitRecords(found.files, "svc").read(1) == CommitRecord(
        LOG, 1, commit, stored_offsets(tiered), 1_700_000_001_048
    )
    (record,) = RoundHistory(found.files, "svc").read()
    assert (record.outcome, record.rows, record.complete_ms) == ("committed", 20, 1_700_000_000_997)

    checkpoint = found.newest()

    splits = tuple(LogSplit(f"b{number}-10", BUCKETS[number], (), 10, 60) for number in (0, 1))
    assert checkpoint.ref == CheckpointRef("svc", str(FIRST), 1, 2, 1)
    assert checkpoint.lease is None
    assert checkpoint.coordinator.splits == splits
    assert dict(checkpoint.coordinator.before) == tiered
    assert checkpoint.coordinator.base_commit == commit
    assert progress(checkpoint) == [
        SplitProgress(split, 30, (LakeFile(f"{prefix}/{name}", "data", 20, 2314),), 20, 1_700_000_100_829, left_out=0)
        for split, name in zip(splits, ("b0-10-1-57b1d94a.arrow", "b1-10-2-68f59d77.arrow"), strict=True)
    ]


def test_a_round_of_kv_snapshots_is_read_as_it_was_with_its_lease(tmp_path: Path) -> None:
    found = left("keyed", tmp_path)
    state, checkpoint = found.state(), found.newest()
    assert state is not None
    assert state.lease_backend == "fluss"
    assert checkpoint.lease == LeaseCopy("fluss", f"{FIRST}-1", state.lease_state)
    assert state.lease_state is not None
    why = "the bytes of its lease are that backend's; the environment `all` has it"
    lease = pytest.importorskip("lakeward_lease_fluss.state", reason=why).unpack(state.lease_state)
    assert (lease.lease_id, lease.generation, lease.held) == (f"{FIRST}-1", 1, dict.fromkeys(BUCKETS, 0))

    prefix = f"lake/t.keyed/{FIRST}/1-1-1"
    files = (
        LakeFile(f"{prefix}/b0-s0-1-5909a4da.arrow", "data", 20, 2314),
        LakeFile(f"{prefix}/b1-s0-2-bb006276.arrow", "data", 20, 2322),
    )
    splits = (SnapshotSplit("b0-s0", BUCKETS[0], (), 0, 56), SnapshotSplit("b1-s0", BUCKETS[1], (), 0, 64))
    assert progress(checkpoint) == [
        SplitProgress(split, 20, (file,), 20, -1, left_out=0) for split, file in zip(splits, files, strict=True)
    ]


def test_the_layout_of_a_partitioned_table_is_read(tmp_path: Path) -> None:
    assert left("partitioned", tmp_path).newest().coordinator.layout == ("bucket(3, id)",)


def test_rows_of_an_exchange_are_read_from_open_files_and_from_both_ends_of_channels(tmp_path: Path) -> None:
    checkpoint = left("exchange", tmp_path).newest()
    states = [part.exchange for part in checkpoint.subtasks if part.exchange is not None]
    assert {state.subtask: state.rows for state in states} == {0: 9, 1: 5}
    opened = [(rows.partition, [one.rows for one in rows.segments]) for state in states for rows in state.open_rows]
    assert sorted(opened) == [(b"[1]", [2]), (b"[1]", [6]), (b"[2]", [3]), (b"[2]", [3])]
    channels = [channel for state in states for channel in state.channels]
    kept = {side: sum(one.segment.rows for one in channels if one.side is side) for side in Side}
    assert kept == {Side.IN: 42, Side.OUT: 70}
    (word,) = [blocked for part in checkpoint.subtasks for blocked in part.blocked]
    assert (word.result.split_id, word.result.rows) == ("b1-0", 63)


def test_shares_of_segments_are_read_that_a_recovery_had_not_written(tmp_path: Path) -> None:
    checkpoint = left("recovering", tmp_path).newest()
    assert checkpoint.ref.incarnation == "svc-1700000200002-0000000000000002"
    shares = [one.kept for one in segments_of(checkpoint) if one.kept is not None]
    assert len(shares) == 13
    assert {(kept.first_group, kept.end_group) for kept in shares} == {(0, 86), (86, 171), (171, 256)}
    assert sum(one.held_rows for one in segments_of(checkpoint)) == 63 + 63


@pytest.mark.parametrize(
    ("name", "commit"),
    [("unsent", ("370a5d958f94df27", 752638012304358258)), ("landed", ("c2ae8a03eed4c353", 792725347417584735))],
)
def test_a_journal_names_the_commit_that_was_under_way(name: str, commit: tuple[str, int], tmp_path: Path) -> None:
    (journal,) = left(name, tmp_path).journals()
    assert journal.commits == (commit,)


def progress(checkpoint: Checkpoint) -> list[SplitProgress]:
    """Return how far each split was, without the seconds that it took."""
    found = [structs.replace(one, timings_s={}) for part in checkpoint.subtasks for one in part.progress]
    return sorted(found, key=lambda one: one.split.split_id)
