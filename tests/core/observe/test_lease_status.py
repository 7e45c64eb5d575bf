from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from lakeward.model.leases import RestoredLease
from lakeward.model.status import ServiceReport
from lakeward.model.tables import KvSnapshot, TableBucket
from lakeward.observe.lease_status import LeaseKnowledge, lease_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = "nyc-5-0123456789abcdef"
BEFORE = "nyc-4-fedcba9876543210"
BUCKET = TableBucket(7, None, 0)
REPORT = ServiceReport("nyc", NOW, 1, "serving", 0, None, (), f"{NOW}-2", 3, 1)


@dataclass(frozen=True)
class Listed:
    lease_id: str
    expires_ms: int
    held: Mapping[TableBucket, int]


def owners(known: LeaseKnowledge) -> dict[str, str]:
    return {line.lease_id: line.owner for line in lease_lines(known)}


def test_each_lease_that_the_source_lists_has_an_owner() -> None:
    ids = [f"{NOW}-2", f"{NOW}-1", f"{BEFORE}-7", "other-1-0123456789abcdef-1", "by.hand"]
    listed = [Listed(lease_id, 100, {BUCKET: 9}) for lease_id in ids]
    restored = RestoredLease(f"{NOW}-2", 2, {BUCKET: 9}, ((f"{NOW}-1", 1),))
    assert owners(LeaseKnowledge("nyc", listed, restored, REPORT)) == {
        f"{NOW}-2": "running service",
        f"{NOW}-1": "old generation",
        f"{BEFORE}-7": "earlier start",
        "by.hand": "other",
        "other-1-0123456789abcdef-1": "other",
    }


def test_the_running_services_lease_says_what_is_to_be_released() -> None:
    (line,) = lease_lines(LeaseKnowledge("nyc", [Listed(f"{NOW}-2", 100, {BUCKET: 9})], None, REPORT))
    assert (line.generation, line.held, line.expires_ms, line.releasing) == (2, 1, 100, 1)
    assert line.buckets == {"7/0": 9}


def test_without_a_running_service_the_persisted_lease_is_the_last_starts() -> None:
    restored = RestoredLease(f"{NOW}-2", 2, {BUCKET: 9})
    assert owners(LeaseKnowledge("nyc", None, restored, None)) == {f"{NOW}-2": "last start"}


def test_a_source_that_cannot_list_shows_what_is_known_here() -> None:
    (line,) = lease_lines(LeaseKnowledge("nyc", None, None, REPORT))
    assert (line.listed, line.held, line.expires_ms) == (False, 3, None)


def test_an_id_that_holds_nothing_here_nor_at_the_source_is_nothing_to_show() -> None:
    nothing = replace(REPORT, leased=0)
    assert lease_lines(LeaseKnowledge("nyc", [], RestoredLease(f"{NOW}-2", 2, {}), nothing)) == []


@pytest.mark.parametrize("restored", [RestoredLease(f"{NOW}-2", 2, {BUCKET: 9}), None])
def test_a_lease_that_we_hold_and_the_source_does_not_have_is_missing(restored: RestoredLease | None) -> None:
    (line,) = lease_lines(LeaseKnowledge("nyc", [], restored, REPORT))
    assert (line.lease_id, line.status, line.listed) == (f"{NOW}-2", "missing", False)


@pytest.mark.parametrize(("expires_ms", "status"), [(101, "held"), (100, "expired")])
def test_a_lease_that_has_run_out_protects_nothing(expires_ms: int, status: str) -> None:
    listed = [Listed(f"{NOW}-2", expires_ms, {BUCKET: 9})]
    (line,) = lease_lines(LeaseKnowledge("nyc", listed, None, REPORT, now_ms=100))
    assert line.status == status


def test_snapshots_of_which_we_and_the_source_say_different_things_are_named() -> None:
    other, third = TableBucket(7, None, 1), TableBucket(7, None, 2)
    listed = [Listed(f"{NOW}-2", 200, {BUCKET: 8, third: 3})]
    restored = RestoredLease(f"{NOW}-2", 2, {BUCKET: 9, other: 5})
    (line,) = lease_lines(LeaseKnowledge("nyc", listed, restored, REPORT, now_ms=100))
    assert line.differences == (
        "bucket 7/0: this service holds snapshot 9, the source lists snapshot 8",
        "bucket 7/1: this service holds snapshot 5, the source lists none",
        "bucket 7/2: the source lists snapshot 3, this service does not hold it",
    )


def test_where_the_source_cannot_list_a_snapshot_that_cannot_be_read_any_more_is_named() -> None:
    restored = RestoredLease(f"{NOW}-2", 2, {BUCKET: 9, TableBucket(7, None, 1): 5})
    gone = [KvSnapshot(BUCKET, 9, 0)]
    (line,) = lease_lines(LeaseKnowledge("nyc", None, restored, REPORT, gone))
    assert (line.status, line.held) == ("unknown", 2)
    assert line.differences == ("bucket 7/0: snapshot 9, which this service holds, cannot be read any more",)


def test_a_name_that_begins_like_the_services_is_another_service() -> None:
    listed = [Listed("nyc.b-4-0123456789abcdef-1", 100, {})]
    assert owners(LeaseKnowledge("nyc", listed, None, None)) == {"nyc.b-4-0123456789abcdef-1": "other"}
