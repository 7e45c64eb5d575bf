"""Which service tiers which table, as commands show it."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.config.loader import load_config
from lakeward.container import build
from lakeward.coordinator.service.scheduling import table_queue
from lakeward.errors import LakeAwayError
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest
from lakeward.observe.control import read_control
from lakeward.serve import effective_rules
from lakeward.storage.binding_files import BindingFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.other_services import bind, report
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from lakeward_service_kit.command_line import Lakeward


@pytest.fixture
def root(tmp_path: Path) -> str:
    """The state root of the configuration."""
    return str(tmp_path / "lakeward-state")


def the_line(flights: Lakeward) -> dict[str, Any]:
    (line,) = flights("tables", "-o", "json").document["tables"]
    return dict(line)


def test_a_single_service_is_not_named_in_each_line(flights: Lakeward, root: str) -> None:
    report(root, "nyc", "nyc.flights")
    assert flights("tables").out.splitlines()[1].split()[:2] == ["table", "status"]
    assert (the_line(flights)["service"], the_line(flights)["bound"]) == ("nyc", False)


def test_a_bound_table_names_its_service(flights: Lakeward, root: str) -> None:
    bind(root, "big", "nyc.*")
    report(root, "big", "nyc.flights")
    out = flights("tables").out.splitlines()
    assert out[0] == "service nyc: has never run here"
    assert out[1].startswith("service big: serving, process ")
    assert out[2].split()[:3] == ["table", "service", "status"]
    assert out[3].split()[:3] == ["nyc.flights", "big", "(bound)"]


def test_a_table_whose_service_is_gone_says_that_it_waits_for_it(flights: Lakeward, root: str) -> None:
    bind(root, "big", "nyc.*")
    report(root, "big", "nyc.flights", state="stopped")
    report(root, "nyc")  # ours runs, and does not help
    line = the_line(flights)
    assert (line["service"], line["bound"]) == ("big", True)
    assert line["message"].endswith("Service 'big', which it is bound to, is not running.")
    assert line["action"] == "Start service 'big', which alone tiers it."


def test_a_shared_table_names_the_running_service_that_reported_it_last(flights: Lakeward, root: str) -> None:
    report(root, "nyc", "nyc.flights", state="stopped")
    assert the_line(flights)["service"] == "nyc"
    report(root, "other", "nyc.flights")
    line = the_line(flights)
    assert (line["service"], line["bound"]) == ("other", False)
    assert "No service is running" not in line["message"]


def test_a_shared_table_that_no_running_service_has_reported_may_be_served_by_any(flights: Lakeward, root: str) -> None:
    report(root, "other")
    line = the_line(flights)
    assert (line["service"], line["bound"]) == ("any", False)
    assert "No service is running" not in line["message"]


def test_a_catalog_that_is_away_is_asked_once_for_the_tables_of_all_services(
    flights: Lakeward, root: str, tmp_path: Path
) -> None:
    with EmbeddedStore.open(tmp_path / "store") as store:
        store.create_table(TablePath("web", "clicks"), pa.schema([pa.field("id", pa.int64())]))
    bind(root, "big", "web.*")
    report(root, "big", "web.clicks")
    report(root, "nyc", "nyc.flights")
    Path("head.pickle").write_bytes(pickle.dumps(LakeAwayError("catalog.db: database is locked")))
    lines = flights("tables", "-o", "json").document["tables"]
    assert [(line["service"], "database is locked" in line["message"]) for line in lines] == [
        ("nyc", True),
        ("big", True),
    ]
    assert len(Path("asked").read_text(encoding="utf-8").splitlines()) == 1


def test_a_service_that_shares_nothing_does_not_serve_other_tables(flights: Lakeward, root: str) -> None:
    bind(root, "other", "web.*", shared=False)
    report(root, "other", "nyc.flights")
    assert "No service is running" in the_line(flights)["message"]


def test_a_pause_reaches_the_service_that_the_table_is_bound_to(flights: Lakeward, root: str) -> None:
    bind(root, "big", "nyc.*")
    assert flights("tables", "pause", "nyc.flights").code == 0
    assert read_control(root, "big").paused == {"nyc.flights"}
    assert read_control(root, "nyc").paused == frozenset()
    assert the_line(flights)["status"] == "paused"
    assert "resumed" in flights("tables", "resume", "nyc.flights").out
    assert read_control(root, "big").paused == frozenset()


def test_a_pause_of_a_shared_table_reaches_every_service(flights: Lakeward, root: str) -> None:
    report(root, "other")
    assert flights("tables", "pause", "nyc.flights").code == 0
    assert read_control(root, "other").paused == read_control(root, "nyc").paused == {"nyc.flights"}


def test_a_plan_leaves_out_what_another_service_tiers(flights: Lakeward, root: str) -> None:
    bind(root, "big", "nyc.*")
    assert flights("plan", "-o", "json").document["rounds"] == []
    said = flights("plan", "nyc.flights")
    assert said.code == 2
    assert "service 'nyc' never tiers this table: it is bound to service 'big'" in said.err


def test_unbind_shares_the_tables_of_a_service_that_is_gone(flights: Lakeward, root: str) -> None:
    bind(root, "big", "nyc.*")
    assert flights("tables", "unbind", "big").out == "No longer bound to big: nyc.*.\n"
    assert the_line(flights)["bound"] is False


def test_unbind_refuses_a_service_that_runs(flights: Lakeward, root: str) -> None:
    bind(root, "big", "nyc.*")
    report(root, "big")
    said = flights("tables", "unbind", "big")
    assert said.code == 2
    assert "big: expected a service that does not run, found one that is serving" in said.err
    assert the_line(flights)["bound"] is True


def test_a_service_that_binds_a_pattern_of_another_one_does_not_start(flights: Lakeward, root: str) -> None:
    bind(root, "big", "nyc.*")
    said = flights("run", "--once", "--set", "service.tables=nyc.*")
    assert said.code == 2
    assert "service.tables: expected patterns that no other service" in said.err


CHECKS = [("config", "check"), ("doctor", "--no-spark")]


def bound_tables(flights: Lakeward, command: tuple[str, ...], *options: str) -> dict[str, Any]:
    """Return what a command that checks says of bound tables."""
    checks = flights(*command, "-o", "json", *options).document["checks"]
    (check,) = (one for one in checks if one["what"] == "bound tables")
    return dict(check)


@pytest.mark.parametrize("command", CHECKS)
def test_a_check_says_that_no_service_binds_tables(flights: Lakeward, command: tuple[str, ...]) -> None:
    check = bound_tables(flights, command)
    assert (check["ok"], check["message"]) == (True, "all are shared")


@pytest.mark.parametrize("command", CHECKS)
def test_a_check_says_who_binds_what_and_binds_nothing(flights: Lakeward, root: str, command: tuple[str, ...]) -> None:
    bind(root, "big", "web.*", "sales.*")
    check = bound_tables(flights, command, "--set", "service.tables=nyc.*", "--set", "service.shared=false")
    assert check["ok"]
    assert check["message"] == (
        "this service binds nyc.*; service 'big' binds sales.*, web.*; this service leaves the others alone"
    )
    assert BindingFiles(SmallFiles(root)).services() == ("big",)


@pytest.mark.parametrize("command", CHECKS)
def test_a_check_finds_a_pattern_that_another_service_binds_before_a_start_does(
    flights: Lakeward, root: str, command: tuple[str, ...]
) -> None:
    bind(root, "big", "nyc.*")
    check = bound_tables(flights, command, "--set", "service.tables=nyc.*")
    assert not check["ok"]
    assert "service.tables: expected patterns that no other service" in check["message"]
    assert "nyc.*, which service 'big' has bound since" in check["message"]


@pytest.mark.parametrize("bound", [True, False])
def test_the_source_of_a_service_assigns_no_table_that_is_bound_to_another_one(
    flights: Lakeward, root: str, *, bound: bool
) -> None:
    """As `lakeward run` opens it."""
    assert flights("tables", "tier-now", "nyc.flights").code == 0
    if bound:
        bind(root, "big", "nyc.*")
    loaded = load_config(None, {})
    container = build(loaded)
    container.bound().bind()
    source, rules = container.source(), partial(effective_rules, loaded, container.bound())
    queue = table_queue(source, rules, container.clock(), mirrors=False, refresh=container.bound().refresh)
    assigned = queue.heartbeat(HeartbeatRequest(request=True)).assignment
    source.close()
    assert (None if assigned is None else str(assigned.path)) == (None if bound else "nyc.flights")
