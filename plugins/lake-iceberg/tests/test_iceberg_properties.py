"""Properties that the configuration wants a lake table to have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import ConfigError
from lakeward.model.results import CommitOutcome
from lakeward_testing.lake_tables import PATH, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward.ports import Lake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin


def properties(catalog: SqlCatalog) -> dict[str, str]:
    return catalog.load_table(str(PATH)).properties


def test_a_new_table_has_them_and_they_win_over_the_sources_and_ours(lake: Lake, catalog: SqlCatalog) -> None:
    wanted = {"team": "sales", "write.metadata.previous-versions-max": "3", "read.split.target-size": "1"}
    table = log_table(properties={"iceberg.team": "none", "iceberg.origin": "fluss"}, lake_properties=wanted)
    lake.open_table(table, incarnation())
    found = properties(catalog)
    assert {key: found[key] for key in wanted} == wanted
    assert found["origin"] == "fluss"


def test_a_property_that_is_another_one_now_is_set_and_one_that_is_taken_out_stays(
    plugin: IcebergLakePlugin, lake: Lake, catalog: SqlCatalog
) -> None:
    for number, wanted in enumerate(({}, {"team": "sales", "cost": "1"}, {"team": "stock"}), 1):
        tiering = TieringRound(plugin, lake, log_table(lake_properties=wanted), incarnation(), number)
        tiering.write(log_split(tiering.table), [source_batch(tiering.table.schema, [{"id": number}])])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    found = properties(catalog)
    assert (found["team"], found["cost"]) == ("stock", "1")
    assert catalog.load_table(str(PATH)).scan().to_arrow()["id"].to_pylist() == [3, 2, 1]


def test_a_table_that_has_them_is_not_changed_again(lake: Lake, catalog: SqlCatalog) -> None:
    table = log_table(lake_properties={"team": "sales"})
    lake.open_table(table, incarnation())
    before = catalog.load_table(str(PATH)).metadata_location
    lake.open_table(table, incarnation())
    assert catalog.load_table(str(PATH)).metadata_location == before


@pytest.mark.parametrize("key", ["lakeward.table-id", "fluss.table.log.ttl", "current-schema"])
def test_what_no_person_sets_is_refused_and_nothing_is_made(lake: Lake, key: str) -> None:
    with pytest.raises(ConfigError, match=f"expected properties of Iceberg that a person sets, found '{key}'"):
        lake.open_table(log_table(lake_properties={key: "3"}), incarnation())
    assert lake.head(PATH) is None


def test_a_commit_says_up_to_when_the_table_is_complete_in_its_summary_and_in_the_tables_properties(
    plugin: IcebergLakePlugin, lake: Lake, catalog: SqlCatalog
) -> None:
    """One that says nothing leaves no word of the one before among the properties."""
    found = []
    for number, complete_ms in enumerate((1_795_887_000_123, None), 1):
        tiering = TieringRound(plugin, lake, log_table(), incarnation(), number)
        assert lake.commit(tiering.request(complete_ms=complete_ms)) is CommitOutcome.LANDED
        table = catalog.load_table(str(PATH))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        said = snapshot.summary.additional_properties
        found.append((said.get("lakeward.complete-ms"), table.properties.get("lakeward.complete-ms")))
    assert found == [("1795887000123", "1795887000123"), (None, None)]
