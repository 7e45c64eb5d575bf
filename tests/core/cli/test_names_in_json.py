"""The names that JSON of `lakeward tables` and `lakeward rounds` has: scripts of users read them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lakeward.clock import SystemClock
from lakeward.model.identity import Incarnation
from lakeward.model.results import LakeHead, OffsetCommit
from lakeward.model.status import CheckpointReport, ExchangeReport, RoundReport, ServiceReport, TableReport
from lakeward.model.tables import TablePath
from lakeward.observe import status_file
from lakeward.storage.round_history import RoundHistory
from lakeward.storage.small_files import SmallFiles
from lakeward_source_embedded.store import EmbeddedStore

Lakeward = Callable[..., Any]
TABLE = (
    "path table_id status message tiered end lag_rows lag_s committed_ms snapshot_id last_round buckets lake_partition "
    "exchange action since_ms phase service bound freshness_s complete_ms"
)
LAST_ROUND = (
    "round_name outcome started_ms ended_ms rows splits splits_done files size_bytes rows_per_s snapshot_id reason "
    "timings_s checkpoint slots slots_asked exchange subtasks lag_rows code"
)
RUNNING = "table table_id round state started_ms seen_ms rows splits splits_done slots slots_asked subtasks reason code"
ENDED = (
    "table table_id round outcome kind started_ms ended_ms rows splits splits_done files size_bytes snapshot_id "
    "timings_s offsets end_offset launches failovers checkpoints aborted resumed_from exchanged_bytes reason code "
    "complete_ms freshness_s"
)
ROUND = RoundReport(
    "nyc-1-00/1-1-1", "failed", 1000, 2000, 3, 2, 1, 0, 9, 3.0, None, "disk full", code="LW-302", table="nyc.flights",
    table_id=1, checkpoint=CheckpointReport(aborted=2), exchange=ExchangeReport(sent_bytes=4096),
)  # fmt: skip


def missing(names: str, found: dict[str, Any]) -> list[str]:
    """Return which of the names are not in an object of JSON."""
    return sorted(set(names.split()) - set(found))


def report(phase: str, last: RoundReport) -> int:
    """Let the service report a table whose last round is `last`; return when it has, in milliseconds since 1970."""
    now_ms = SystemClock().wall_ms()
    table = TableReport("nyc.flights", 1, phase, "disk full", 3, 0.0, 0, 0, last)
    told = ServiceReport("nyc", "nyc-1-0123456789abcdef", os.getpid(), "serving", now_ms, None, (table,), None, 0, 0)
    status_file.write(str(Path("lakeward-state").resolve()), "nyc", told)
    return now_ms


def let_lake_have_all(root: Path) -> None:
    """Let the lake have the three rows of the table."""
    with EmbeddedStore.open(root) as store:
        spec = store.table(TablePath("nyc", "flights"))
        bucket = store.buckets(spec.path)[0].bucket
    own = OffsetCommit(5, {bucket: 3}, None, Incarnation("nyc", 1, "0" * 16), "1-1-1", 1, 0)
    Path("head.pickle").write_bytes(pickle.dumps(LakeHead(spec.path, spec.table_id, "/w", 5, None, own, own)))


@pytest.mark.parametrize("words", [("tables",), ("tables", "list"), ("tables", "nyc.flights")])
def test_a_table_that_no_service_has_seen_has_all_names(flights: Lakeward, words: tuple[str, ...]) -> None:
    (table,) = flights(*words, "-o", "json").document["tables"]
    assert missing(TABLE, table) == []
    assert (table["status"], table["phase"], table["last_round"]) == ("new", "", None)


@pytest.mark.parametrize(("phase", "status"), [("backoff", "retrying"), ("suspended", "suspended"), ("waiting", "new")])
def test_a_table_has_all_names_and_its_status_beside_its_phase(flights: Lakeward, phase: str, status: str) -> None:
    report(phase, ROUND)
    (table,) = flights("tables", "-o", "json").document["tables"]
    assert missing(TABLE, table) == []
    assert (table["status"], table["phase"], table["last_round"]["code"]) == (status, phase, "LW-302")
    assert missing(LAST_ROUND, table["last_round"]) == []


def test_a_table_that_is_tiered_has_all_names(flights: Lakeward, tmp_path: Path) -> None:
    report("committing", replace(ROUND, outcome="running", ended_ms=None))
    let_lake_have_all(tmp_path / "store")
    (table,) = flights("tables", "-o", "json").document["tables"]
    assert missing(TABLE, table) == []
    assert (table["status"], table["tiered"], table["lag_rows"], table["snapshot_id"]) == ("ok", 3, 0, 5)


def test_a_round_that_runs_and_one_that_has_ended_have_all_names(flights: Lakeward) -> None:
    now_ms = report("committing", replace(ROUND, outcome="running", ended_ms=None))
    RoundHistory(SmallFiles("lakeward-state"), "nyc").add(ROUND)
    document = flights("rounds", "list", "-o", "json").document
    (running,), (ended,) = document["running"], document["rounds"]
    assert (missing(RUNNING, running), missing(ENDED, ended)) == ([], [])
    assert (running["state"], running["seen_ms"]) == ("committing", now_ms)
    assert (ended["round"], ended["aborted"], ended["exchanged_bytes"]) == ("nyc-1-00/1-1-1", 2, 4096)
    assert flights("rounds", "show", "1-1-1", "-o", "json").document == ended
