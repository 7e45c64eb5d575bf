"""A catalog that throttles is asked again when it says; one that fails or is silent leaves the outcome unknown."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.errors import OutcomeUnknownError
from lakeward.model.results import CommitOutcome
from lakeward_iceberg_kit.gateway import Fate, Gateway, Request
from lakeward_lake_iceberg.lake import IcebergLake
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import COLUMNS, PATH, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

LANDED = (Fate.LANDED_500, Fate.LANDED_503, Fate.ANSWER_LOST)
NOT_LANDED = (Fate.UNAVAILABLE, Fate.REQUEST_LOST)


@pytest.fixture
def opened(plugin: IcebergLakePlugin, gateway: Gateway) -> Iterator[Callable[[float], IcebergLake]]:
    """Open a lake behind the gateway, with a time limit for each call."""
    lakes: list[IcebergLake] = []

    def opening(call_timeout_s: float = 60.0) -> IcebergLake:
        lake = plugin.open(msgspec.structs.replace(gateway.options, commit_timeout_s=call_timeout_s), FakeClock())
        assert isinstance(lake, IcebergLake)
        lakes.append(lake)
        return lake

    yield opening
    for lake in lakes:
        lake.close()


def written(plugin: IcebergLakePlugin, lake: IcebergLake) -> TieringRound:
    tiering = TieringRound(plugin, lake, log_table(), incarnation())
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
    return tiering


class Throttling:
    """The fate of the first commits that arrive, and when each arrived."""

    def __init__(self, most: int, fate: Fate = Fate.THROTTLED) -> None:
        """Let so many meet it."""
        self.at: list[float] = []
        self._most = most
        self._fate = fate

    def __call__(self, request: Request) -> Fate:
        if not request.is_commit:
            return Fate.PASSED
        self.at.append(time.monotonic())
        return self._fate if len(self.at) <= self._most else Fate.PASSED


@pytest.mark.parametrize("fate", [*LANDED, *NOT_LANDED])
def test_a_server_that_fails_or_is_silent_leaves_the_outcome_of_a_commit_unknown(
    plugin: IcebergLakePlugin, opened: Callable[..., IcebergLake], gateway: Gateway, fate: Fate
) -> None:
    """Not a failure: files may not be deleted. Looking tells what happened."""
    lake = opened()
    tiering = written(plugin, lake)
    request = tiering.request()
    gateway.fate = Throttling(1, fate)
    with pytest.raises(OutcomeUnknownError):
        lake.commit(request)
    found = lake.find(PATH, request.round_id, 0)
    assert found == (request.ids.snapshot_id if fate in LANDED else None)


@pytest.mark.parametrize(
    ("fate", "retry_after"),
    [
        (Fate.THROTTLED, "1"),
        (Fate.THROTTLED, None),
        (Fate.THROTTLED, "Tue, 24 Nov 2026 12:00:00 GMT"),
        (Fate.UNAVAILABLE, "1"),
    ],
)
def test_a_commit_that_is_throttled_is_sent_again_once_the_catalog_wants_it(
    plugin: IcebergLakePlugin,
    opened: Callable[..., IcebergLake],
    gateway: Gateway,
    fate: Fate,
    retry_after: str | None,
) -> None:
    lake = opened()
    tiering = written(plugin, lake)
    gateway.fate, gateway.retry_after = (asked := Throttling(1, fate)), retry_after
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    first, second = asked.at
    assert second - first >= 1.0


def test_a_catalog_that_asks_for_more_time_than_there_is_is_not_asked_again_at_once(
    plugin: IcebergLakePlugin, opened: Callable[..., IcebergLake], gateway: Gateway
) -> None:
    """A quarter of the time limit of a call is waited, so that a commit that is tried again and again goes slowly."""
    lake = opened(2.0)
    tiering = written(plugin, lake)
    gateway.fate, gateway.retry_after = (asked := Throttling(1)), "3600"
    started = time.monotonic()
    with pytest.raises(OutcomeUnknownError, match="429"):
        lake.commit(tiering.request())
    assert time.monotonic() - started >= 0.5
    assert len(asked.at) == 1


def test_a_call_after_one_that_ran_out_of_time_leaves_the_catalog_alone_first(
    plugin: IcebergLakePlugin, opened: Callable[..., IcebergLake], gateway: Gateway
) -> None:
    """Each call waits for half a second at most, and the catalog wants a whole one."""
    lake = opened(2.0)
    tiering = written(plugin, lake)
    gateway.fate, gateway.retry_after = (asked := Throttling(1)), "1"
    with pytest.raises(OutcomeUnknownError, match="429"):
        lake.commit(tiering.request())
    assert lake.find(PATH, tiering.round_id, 0) is None
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    first, second = asked.at
    assert second - first >= 1.0


def test_a_commit_whose_first_copy_landed_although_the_catalog_said_that_it_throttles_counts_once(
    plugin: IcebergLakePlugin, opened: Callable[..., IcebergLake], gateway: Gateway
) -> None:
    """A proxy sent it twice: the second copy was throttled, and the first one is in the table."""
    lake = opened()
    tiering = written(plugin, lake)
    sent: list[Request] = []

    def fate(request: Request) -> Fate:
        if not request.is_commit or sent:
            return Fate.PASSED
        sent.append(request)
        gateway.late.append(request)
        gateway.deliver()
        return Fate.THROTTLED

    gateway.fate = fate
    request = tiering.request()
    assert lake.commit(request) is CommitOutcome.LANDED
    assert gateway.catalog.load_table(str(PATH)).metadata.current_snapshot_id == request.ids.snapshot_id
