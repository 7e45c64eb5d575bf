"""What was read of files that never change is not read again, and takes no more memory than was said."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.model.results import CommitOutcome
from lakeward_lake_paimon.known_files import KnownFiles
from lakeward_lake_paimon.manifests import ADD, DataFile, Entry
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.s3_storage import S3Storage
from lakeward_lake_paimon.stats import Stats
from lakeward_paimon_kit.gateway import DiskStore, Way, connected
from lakeward_paimon_kit.replaced import replaced
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import COLUMNS, PATH, TieringRound, incarnation, key_table, log_split, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakeward_lake_paimon.plugin import PaimonLakePlugin

CALLS = ("read", "exists", "names", "list", "write", "put_new", "delete")


@pytest.fixture
def requests(tmp_path: Path) -> Iterator[tuple[PaimonOptions, list[tuple[str, str]]]]:
    """The options of a lake in a store, and what was asked of it: the call, and the folder or the path."""
    asked: list[tuple[str, str]] = []
    store = DiskStore(tmp_path)
    way = Way(store.put)

    def noted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(storage: S3Storage, path: str, *given: Any) -> Any:  # noqa: ANN401 - as the method
            asked.append((name, path))
            return original(storage, path, *given)

        return call

    keys = {"s3.endpoint": f"http://{way.host}", "s3.access-key": "someone", "s3.secret-key": "password"}
    with ExitStack() as stack:
        stack.callback(way.close)
        stack.enter_context(connected(store))
        for name in CALLS:
            stack.enter_context(replaced(S3Storage, name, noted(name, getattr(S3Storage, name))))
        yield PaimonOptions(warehouse="s3://lake/paimon", properties=keys, keep_snapshots=5), asked


def test_a_round_in_a_store_reads_no_manifest_again_and_asks_for_little_else(
    plugin: PaimonLakePlugin, requests: tuple[PaimonOptions, list[tuple[str, str]]]
) -> None:
    options, asked = requests
    lake = plugin.open(options, FakeClock())
    for number in range(1, 11):
        asked.clear()
        tiering = TieringRound(plugin, lake, key_table(), incarnation(), number)
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": number}])])
        prefix = lake.file_prefix(PATH, tiering.round_id)
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        files = lake.list_prefix(PATH, prefix)
        assert lake.referenced(PATH, files) == frozenset(files)
    assert [path for call, path in asked if call == "read" and "/manifest/" in path] == []
    counted = Counter(call for call, _ in asked)
    assert (counted["read"], counted["names"], counted["write"], counted["put_new"]) == (37, 23, 7, 1)


def entries(count: int, columns: int) -> list[Entry]:
    """Make entries of files of a table of so many columns."""
    stats = Stats(bytes(10 * columns), bytes(10 * columns), tuple(range(columns)))
    file = DataFile("data.parquet", 0, 0, 0, 0, 0, 0, value_stats=stats)
    return [Entry(ADD, b"", 0, 1, file)] * count


def test_what_nobody_has_asked_for_the_longest_is_forgotten_first() -> None:
    known = KnownFiles()
    for number in range(6):
        known.put(str(number), entries(1000, 10))
        assert known.get("0") is not None
    assert [number for number in range(6) if known.get(str(number)) is None] == [1, 2, 3]


def test_a_file_of_many_columns_takes_the_place_of_many_of_few() -> None:
    known = KnownFiles()
    for number in range(3):
        known.put(str(number), entries(1000, 10))
    known.put("wide", entries(100, 1000))
    assert [number for number in range(3) if known.get(str(number)) is None] == [0, 1]
    assert known.get("wide") is not None


def test_what_was_written_last_counts() -> None:
    known = KnownFiles()
    known.put("other", entries(1, 10))
    for count in (3000, 2000, 3):
        known.put("again", entries(count, 10))
    assert (known.get("again"), known.get("other")) == (entries(3, 10), entries(1, 10))
    known.put("again", entries(10_000, 10))
    assert known.get("again") is None


def test_a_large_file_is_not_kept() -> None:
    known = KnownFiles()
    known.put("small", entries(10, 10))
    known.put("large", entries(10_000, 10))
    assert known.get("large") is None
    assert known.get("small") == entries(10, 10)
