from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeward.clock import SystemClock
from lakeward.model.status import ServiceReport
from lakeward.model.tables import TableBucket
from lakeward.observe import status_file
from lakeward.observe.presence import show_presence
from lakeward_source_embedded.store import EmbeddedStore

Lakeward = Callable[..., Any]
START = "nyc-1-0123456789abcdef"
OURS, OLDER, FOREIGN = f"{START}-2", "nyc-0-0123456789abcdef-1", "other"


@pytest.fixture
def leased(flights: Lakeward, tmp_path: Path) -> Lakeward:
    """Hold the table's snapshot by three leases: the running service's, an earlier start's and another's."""
    flights("embedded", "snapshot", "nyc.flights")
    with EmbeddedStore.open(tmp_path / "store") as store:
        for lease_id in (OURS, OLDER, FOREIGN):
            store.lease_table.acquire(lease_id, 3600.0, {TableBucket(1, None, 0): 0})
    now = SystemClock().wall_ms()
    report = ServiceReport("nyc", START, os.getpid(), "serving", now, None, (), OURS, 1, 2, "all is well")
    status_file.write(str(tmp_path / "lakeward-state"), "nyc", report)
    return flights


def ids(lakeward: Lakeward) -> list[str]:
    return [lease["lease_id"] for lease in lakeward("leases", "-o", "json").document["leases"]]


def test_leases_are_listed_with_their_owners(leased: Lakeward) -> None:
    leases = leased("leases", "list", "-o", "json").document["leases"]
    assert [(lease["lease_id"], lease["owner"], lease["releasing"]) for lease in leases] == [
        (OURS, "running service", 2),
        (OLDER, "earlier start", None),
        (FOREIGN, "other", None),
    ]
    assert leases[0]["buckets"] == {"1/0": 0}


def test_leases_as_text_say_when_they_run_out(leased: Lakeward) -> None:
    said = leased("leases", "--buckets")
    assert said.out.startswith("lease backend mine\nall is well\n")
    assert "in 59 min" in said.out or "in 1 h 0 min" in said.out


def test_a_lease_is_dropped(leased: Lakeward) -> None:
    assert leased("leases", "drop", FOREIGN).out == f"Dropped {FOREIGN}.\n"
    assert ids(leased) == [OURS, OLDER]


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_lease_that_is_not_there_cannot_be_dropped(leased: Lakeward, force: tuple[str, ...]) -> None:
    said = leased("leases", "drop", "nyc-7-0-0", *force)
    assert (said.code, said.out) == (2, "")
    expected = (
        "error[LW-100]: lease nyc-7-0-0: expected a lease that `lakeward leases list` shows, found none of this id\n"
    )
    assert said.err == expected


def test_the_running_services_lease_is_refused(leased: Lakeward) -> None:
    said = leased("leases", "drop", OURS)
    assert said.code == 2
    assert "--force" in said.err
    assert OURS in ids(leased)


def test_the_running_services_lease_is_dropped_by_force(leased: Lakeward) -> None:
    assert leased("leases", "drop", "--all-of-service", "--force").code == 0
    ours, foreign = leased("leases", "-o", "json").document["leases"]
    assert (ours["lease_id"], ours["status"]) == (OURS, "missing")  # the service has not noticed yet
    assert (foreign["lease_id"], foreign["status"]) == (FOREIGN, "held")
    assert f"! {OURS}: the source does not have it: nothing is protected" in leased("leases").out.splitlines()


def test_leases_that_a_service_may_take_over_while_it_starts_are_refused(leased: Lakeward, tmp_path: Path) -> None:
    """The last start's report says that it has stopped, and the new one has written none yet."""
    root = str(tmp_path / "lakeward-state")
    now = SystemClock().wall_ms()
    status_file.write(root, "nyc", ServiceReport("nyc", START, os.getpid(), "stopped", now, None, (), OURS, 1, 2))
    ended = show_presence(root, "nyc")
    for words in ((OURS,), (OLDER,), ("--all-of-service",)):
        said = leased("leases", "drop", *words)
        assert said.code == 2
        assert "service nyc starts or hangs, and may take over what it holds" in said.err
    assert leased("leases", "drop", FOREIGN).code == 0
    assert set(ids(leased)) == {OURS, OLDER}
    assert leased("leases", "drop", OURS, "--force").code == 0
    ended()
    assert leased("leases", "drop", OLDER).code == 0


def test_nothing_is_dropped_where_one_is_refused(leased: Lakeward) -> None:
    assert leased("leases", "drop", "--all-of-service").code == 2
    assert ids(leased) == [OURS, OLDER, FOREIGN]


@pytest.mark.parametrize("words", [(), ("x", "--all-of-service")])
def test_what_to_drop_must_be_said_once(leased: Lakeward, words: tuple[str, ...]) -> None:
    assert leased("leases", "drop", *words).code == 2


def test_an_old_server_is_told_as_such(leased: Lakeward) -> None:
    leased("embedded", "set-option", "lease-api", "false")
    assert leased("leases", "drop", FOREIGN).err.startswith("error[LW-310]: ")


def test_no_lease_is_told(flights: Lakeward) -> None:
    assert "No lease is held." in flights("leases").out
