"""A gateway before the catalog repeats a request, loses it or its answer: what landed stays whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.coordinator.commits.committer import Committer, CommitWork
from lakeward.errors import LakewardError, OutcomeUnknownError
from lakeward.model.results import CommitIds, CommitOutcome
from lakeward.model.tables import TableBucket
from lakeward_iceberg_kit.gateway import Fate, Gateway, Request
from lakeward_lake_iceberg.lake import IcebergLake
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import COLUMNS, PATH, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward_lake_iceberg.plugin import IcebergLakePlugin


@pytest.fixture
def lake(plugin: IcebergLakePlugin, gateway: Gateway) -> Iterator[IcebergLake]:
    """An open lake behind the gateway."""
    lake = plugin.open(gateway.options, FakeClock())
    assert isinstance(lake, IcebergLake)
    yield lake
    lake.close()


@pytest.fixture
def read(gateway: Gateway, reader: Any) -> Callable[[], tuple[list[int], list[int]]]:  # noqa: ANN401 - DuckDB is not typed
    """Return the ids that DuckDB and pyiceberg read."""

    def ids() -> tuple[list[int], list[int]]:
        table = gateway.catalog.load_table("shop.orders")
        found = reader.execute(f"SELECT id FROM iceberg_scan('{table.metadata_location}')").to_arrow_table()  # noqa: S608 - a test's own text
        return sorted(found.column("id").to_pylist()), sorted(table.scan().to_arrow().column("id").to_pylist())

    return ids


@dataclass
class Fates:
    """The fates of commits, in their order; then all pass."""

    fates: list[Fate]
    met: int = field(default=0)

    def __call__(self, request: Request) -> Fate:
        if not request.is_commit or self.met >= len(self.fates):
            return Fate.PASSED
        self.met += 1
        return self.fates[self.met - 1]


class _Source:
    """The two calls that a committer makes to a source."""

    def prepare(self, *_: object) -> str:
        return ""

    def commit(self, *_: object) -> None:
        return None


def _written(plugin: IcebergLakePlugin, lake: IcebergLake, number: int = 1) -> TieringRound:
    tiering = TieringRound(plugin, lake, log_table(), incarnation(), number)
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": number}])])
    return tiering


def _committed(lake: IcebergLake, tiering: TieringRound, tries: list[CommitIds] | None = None) -> int:
    """Commit as the service does; return the snapshot id."""
    tried = [] if tries is None else tries
    offsets = {TableBucket(7, None, 0): tiering.number}
    work = CommitWork(
        round_id=tiering.round_id,
        step=1,
        base_commit=None if tiering.head.commit is None else tiering.head.commit.snapshot_id,
        incarnation=tiering.who,
        table=tiering.table,
        files=tuple(tiering.files),
        offsets=offsets,
        journal=tried.append,
        may_commit=lambda: None,
    )
    return Committer(_Source(), lake, FakeClock()).commit(work).snapshot_id  # type: ignore[arg-type]


LANDED_AFTER_ALL = [
    Fate.REPEATED,
    Fate.LANDED_403,
    Fate.LANDED_404,
    Fate.LANDED_409,
    Fate.LANDED_500,
    Fate.LANDED_503,
    Fate.ANSWER_LOST,
]
UNSURE = [fate for fate in LANDED_AFTER_ALL if fate is not Fate.LANDED_403]
"""Without the one that looks like a refusal for good: a stamp is then tried again by the next round."""


@pytest.mark.parametrize("fate", LANDED_AFTER_ALL)
def test_a_commit_that_landed_and_was_said_to_have_failed_stays_readable_and_has_its_rows_once(
    plugin: IcebergLakePlugin,
    lake: IcebergLake,
    gateway: Gateway,
    read: Callable[[], tuple[list[int], list[int]]],
    fate: Fate,
) -> None:
    tiering = _written(plugin, lake)
    gateway.fate = Fates([fate])
    snapshot_id = _committed(lake, tiering)
    assert gateway.catalog.load_table("shop.orders").metadata.current_snapshot_id == snapshot_id
    assert read() == ([1], [1])
    _committed(lake, _written(plugin, lake, 2))
    assert read() == ([1, 2], [1, 2])


def test_a_repeated_commit_is_said_to_have_landed(
    plugin: IcebergLakePlugin, lake: IcebergLake, gateway: Gateway
) -> None:
    tiering = _written(plugin, lake)
    gateway.fate = Fates([Fate.REPEATED])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


def test_a_conflict_without_a_winner_is_unknown_and_takes_nothing_away(
    plugin: IcebergLakePlugin,
    lake: IcebergLake,
    gateway: Gateway,
    read: Callable[[], tuple[list[int], list[int]]],
) -> None:
    """The copy that was answered lost to nobody: the other copy may be on its way."""
    tiering = _written(plugin, lake)
    on_its_way: list[Request] = []

    def fate(request: Request) -> Fate:
        if not request.is_commit or on_its_way:
            return Fate.PASSED
        on_its_way.append(request)
        return Fate.CONFLICT

    gateway.fate = fate
    request = tiering.request()
    with pytest.raises(OutcomeUnknownError):
        lake.commit(request)
    gateway.late += on_its_way
    gateway.deliver()
    assert lake.find(PATH, request.round_id, 0) == request.ids.snapshot_id
    assert read() == ([1], [1])


def test_a_commit_that_lands_while_it_is_built_anew_counts_once(
    plugin: IcebergLakePlugin,
    lake: IcebergLake,
    gateway: Gateway,
    read: Callable[[], tuple[list[int], list[int]]],
) -> None:
    tiering = _written(plugin, lake)
    seen: list[Request] = []

    def fate(request: Request) -> Fate:
        if request.is_commit:
            seen.append(request)
        return Fate.CONFLICT if seen == [request] else Fate.PASSED

    def first_arrives_before_second(request: Request) -> None:
        if request is seen[1]:
            gateway.before = lambda _: None
            gateway.late = [seen[0]]
            gateway.deliver()

    gateway.fate = fate
    gateway.before = lambda request: first_arrives_before_second(request) if len(seen) > 1 else None
    tried: list[CommitIds] = []
    assert _committed(lake, tiering, tried) == tried[0].snapshot_id
    assert read() == ([1], [1])


@pytest.mark.parametrize("fate", [*UNSURE, Fate.CONFLICT, Fate.REQUEST_LOST])
def test_a_stamp_whose_answer_says_little_is_taken_and_leaves_the_table_readable(
    plugin: IcebergLakePlugin,
    lake: IcebergLake,
    gateway: Gateway,
    read: Callable[[], tuple[list[int], list[int]]],
    fate: Fate,
) -> None:
    _committed(lake, _written(plugin, lake))
    gateway.fate = Fates([fate])
    assert lake.stamp(PATH, incarnation(2000)).stamp == incarnation(2000)
    assert read() == ([1], [1])


def test_a_stamp_that_lands_after_a_conflict_is_readable(
    plugin: IcebergLakePlugin,
    lake: IcebergLake,
    gateway: Gateway,
    read: Callable[[], tuple[list[int], list[int]]],
) -> None:
    _committed(lake, _written(plugin, lake))
    first: list[Request] = []

    def fate(request: Request) -> Fate:
        if request.is_commit and not first:
            first.append(request)
            return Fate.CONFLICT
        if request.method == "GET" and first and first[0] not in arrived:
            arrived.append(first[0])
            return Fate.PASSED
        if len(arrived) == 1:
            arrived.append(first[0])
            gateway.late = [first[0]]
            gateway.deliver()
        return Fate.PASSED

    arrived: list[Request] = []
    gateway.fate = fate
    assert lake.stamp(PATH, incarnation(2000)).stamp == incarnation(2000)
    assert read() == ([1], [1])


@pytest.mark.parametrize("fate", LANDED_AFTER_ALL)
def test_a_table_is_opened_whatever_becomes_of_the_answers(
    plugin: IcebergLakePlugin, lake: IcebergLake, gateway: Gateway, fate: Fate
) -> None:
    met: list[Request] = []

    def each_change_once(request: Request) -> Fate:
        if request.changes and request not in met:
            met.append(request)
            return fate
        return Fate.PASSED

    gateway.fate = each_change_once
    for _ in range(4):
        try:
            head = lake.open_table(log_table(), incarnation())
        except LakewardError:
            continue
        assert (head.table_id, head.commit) == (7, None)
        break
    else:
        pytest.fail("the table could not be opened")
