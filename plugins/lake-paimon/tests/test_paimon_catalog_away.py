"""A REST catalog that is silent, refuses connections or throttles: it is said in words, and no commit lands twice."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lakeward.errors import LakeAwayError, OutcomeUnknownError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import TablePath
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_paimon_kit.rest import TOKEN, LostAnswer, RestCatalogServer
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import COLUMNS, PATH, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakeward.ports import Lake
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

PATHS = [TablePath("shop", "orders"), TablePath("shop", "clicks")]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalogServer]:
    """A catalog without tables."""
    with RestCatalogServer.running(tmp_path / "warehouse") as server:
        yield server


@pytest.fixture
def options(catalog: RestCatalogServer) -> PaimonOptions:
    """The warehouse of that catalog."""
    return PaimonOptions(metastore="rest", uri=catalog.uri, warehouse="lake", properties={"token": TOKEN})


def words(lake: Lake) -> set[str]:
    """Return what is said of each table while the catalog is away."""
    said = set()
    for path in PATHS:
        with pytest.raises(LakeAwayError) as away:
            lake.head(path)
        said.add(str(away.value))
    return said


def test_a_catalog_where_nobody_listens_any_more_does_not_answer(plugin: PaimonLakePlugin, tmp_path: Path) -> None:
    with RestCatalogServer.running(tmp_path / "elsewhere") as server:
        options = PaimonOptions(metastore="rest", uri=server.uri, warehouse="lake", properties={"token": TOKEN})
        lake = plugin.open(options, FakeClock())
        assert lake.head(PATHS[0]) is None
    assert words(lake) == {f"{server.uri}: connection refused"}


def test_a_catalog_that_is_silent_does_not_answer(
    plugin: PaimonLakePlugin, catalog: RestCatalogServer, options: PaimonOptions
) -> None:
    lake = plugin.open(msgspec.structs.replace(options, commit_timeout_s=0.1), FakeClock())
    with socket.socket() as silent:
        # It takes connections and never says a word.
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(LakeAwayError, match=rf"^{uri}: no answer in time$"):
            plugin.open(msgspec.structs.replace(options, uri=uri, commit_timeout_s=0.1), FakeClock())
    assert lake.head(PATHS[0]) is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((503, {"message": "later"}), "HTTP 503: later"),
        ((429, {"message": "too many"}), "HTTP 429: too many"),
        (None, "Remote end closed connection without response"),
    ],
    ids=["fails", "throttles", "breaks off"],
)
def test_a_catalog_that_does_something_else_than_answer_is_said_to_be_away_in_the_same_words_for_each_table(
    plugin: PaimonLakePlugin,
    catalog: RestCatalogServer,
    options: PaimonOptions,
    answer: tuple[int, dict[str, Any]] | None,
    said: str,
) -> None:
    lake = plugin.open(msgspec.structs.replace(options, commit_timeout_s=1.0), FakeClock())

    def between(*_: str) -> tuple[int, dict[str, Any]]:
        if answer is None:
            raise LostAnswer
        return answer

    catalog.between = between
    assert words(lake) == {f"{catalog.uri}: {said}"}
    catalog.between = None
    assert lake.head(PATHS[0]) is None


class Putting:
    """Answers the first commits in the catalog's place, and notes when each came."""

    def __init__(self, most: int, status: int = 429) -> None:
        """Let so many be answered so."""
        self.at: list[float] = []
        self._most = most
        self._status = status

    def __call__(self, method: str, path: str) -> tuple[int, dict[str, Any]] | None:
        if method != "POST" or not path.endswith("/commit"):
            return None
        self.at.append(time.monotonic())
        return (self._status, {"message": "too many"}) if len(self.at) <= self._most else None


@pytest.fixture
def written(plugin: PaimonLakePlugin, options: PaimonOptions) -> Callable[..., tuple[Lake, TieringRound]]:
    """Begins a round, with a time limit for each call."""

    def begin(call_timeout_s: float = 60.0) -> tuple[Lake, TieringRound]:
        lake = plugin.open(msgspec.structs.replace(options, commit_timeout_s=call_timeout_s), FakeClock())
        tiering = TieringRound(plugin, lake, log_table(), incarnation())
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
        return lake, tiering

    return begin


@pytest.mark.parametrize(
    ("status", "retry_after"),
    [(429, "1"), (429, None), (429, "Tue, 24 Nov 2026 12:00:00 GMT"), (503, "1")],
)
def test_a_commit_that_is_throttled_is_sent_again_once_the_catalog_wants_it(
    written: Callable[..., tuple[Lake, TieringRound]], catalog: RestCatalogServer, status: int, retry_after: str | None
) -> None:
    lake, tiering = written()
    catalog.between, catalog.retry_after = (asked := Putting(1, status)), retry_after
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    first, second = asked.at
    assert second - first >= 1.0


def test_a_catalog_that_asks_for_more_time_than_there_is_is_not_asked_again_at_once(
    written: Callable[..., tuple[Lake, TieringRound]], catalog: RestCatalogServer
) -> None:
    """A quarter of the time limit of a call is waited, so that a commit that is tried again and again goes slowly."""
    lake, tiering = written(2.0)
    catalog.between, catalog.retry_after = (asked := Putting(1)), "3600"
    started = time.monotonic()
    with pytest.raises(OutcomeUnknownError, match="HTTP 429"):
        lake.commit(tiering.request())
    assert time.monotonic() - started >= 0.5
    assert len(asked.at) == 1
    catalog.between = None
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


def test_a_commit_whose_first_copy_landed_although_the_catalog_said_that_it_throttles_counts_once(
    written: Callable[..., tuple[Lake, TieringRound]], catalog: RestCatalogServer
) -> None:
    """A proxy sent it twice: the second copy was throttled, and the first one is in the table."""
    lake, tiering = written()
    request = tiering.request()
    throttled = [(429, {"message": "too many"})]
    catalog.after_commit = lambda _: throttled.pop() if throttled else None
    assert lake.commit(request) is CommitOutcome.LANDED
    assert lake.find(PATH, request.round_id, 0) == request.ids.snapshot_id
    # The stamp, the commit, and the commit again.
    assert len([one for one in catalog.seen if one[1].endswith("/commit")]) == 3
