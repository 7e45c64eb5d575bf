"""Options that the configuration wants a lake table to have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import ConfigError, SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward_testing.lake_tables import PATH, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from lakeward.ports import Lake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin


def schemas(options: PaimonOptions) -> list[dict[str, str]]:
    """Return the options of each schema of the table, in order."""
    folder = Path(options.warehouse) / "shop.db" / "orders" / "schema"
    files = sorted(folder.iterdir(), key=lambda file: int(file.name.partition("-")[2]))
    return [json.loads(file.read_bytes())["options"] for file in files]


def test_a_new_table_has_them_and_they_win_over_the_sources(lake: Lake, options: PaimonOptions) -> None:
    wanted = {"snapshot.num-retained.min": "30", "read.batch-size": "2048"}
    table = log_table(
        properties={"paimon.read.batch-size": "1", "paimon.sink.parallelism": "2"}, lake_properties=wanted
    )
    lake.open_table(table, incarnation())
    (found,) = schemas(options)
    assert {key: found[key] for key in wanted} == wanted
    assert found["sink.parallelism"] == "2"


def test_an_option_that_is_another_one_now_makes_the_next_schema_and_one_that_is_taken_out_stays(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions
) -> None:
    for number, wanted in enumerate(
        ({}, {"read.batch-size": "7", "sink.parallelism": "2"}, {"read.batch-size": "8"}), 1
    ):
        tiering = TieringRound(plugin, lake, log_table(lake_properties=wanted), incarnation(), number)
        tiering.write(log_split(tiering.table), [source_batch(tiering.table.schema, [{"id": number}])])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        lake.open_table(tiering.table, incarnation())  # which has them: nothing is written
    assert [one.get("read.batch-size") for one in schemas(options)] == [None, "7", "8"]
    assert schemas(options)[-1]["sink.parallelism"] == "2"


@pytest.mark.parametrize("key", ["bucket", "bucket-key", "fluss.table.log.ttl"])
def test_what_no_person_sets_is_refused_and_nothing_is_made(lake: Lake, key: str) -> None:
    with pytest.raises(ConfigError, match=f"expected options of Paimon that a person sets, found '{key}'"):
        lake.open_table(log_table(lake_properties={key: "3"}), incarnation())
    assert lake.head(PATH) is None


def test_an_option_with_which_the_table_could_not_be_written_is_refused_and_the_table_stays(
    lake: Lake, options: PaimonOptions
) -> None:
    lake.open_table(log_table(), incarnation())
    with pytest.raises(SchemaMismatchError, match=r"deletion-vectors\.enabled"):
        lake.open_table(log_table(lake_properties={"deletion-vectors.enabled": "true"}), incarnation())
    assert len(schemas(options)) == 1


def test_a_commit_says_up_to_when_the_table_is_complete_in_its_snapshots_properties(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions
) -> None:
    request = TieringRound(plugin, lake, log_table(), incarnation()).request(complete_ms=1_795_887_000_123)
    assert lake.commit(request) is CommitOutcome.LANDED
    snapshot = Path(options.warehouse) / "shop.db" / "orders" / "snapshot" / f"snapshot-{request.ids.snapshot_id}"
    assert json.loads(snapshot.read_bytes())["properties"]["lakeward.complete-ms"] == "1795887000123"
