"""How other programs read a table: by its warehouse or its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.tables import TablePath
    from lakeward_lake_paimon.options import PaimonOptions


def reading_lines(path: TablePath, location: str, options: PaimonOptions) -> Mapping[str, str]:
    """Return a line for each program; the properties of `[lake.properties]` have to be added to each."""
    catalog = {"metastore": options.metastore, "warehouse": options.warehouse} | (
        {"uri": options.uri} if options.uri else {}
    )
    keys = {"type": "paimon"} | catalog
    made = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in keys.items())
    table = f"`{path.database}`.`{path.table}`"
    trino = "; ".join(["connector.name=paimon", *(f"{key}={value}" for key, value in catalog.items())])
    return {
        "Flink SQL": f"CREATE CATALOG lake WITH ({made}); SELECT * FROM lake.{table};",  # noqa: S608 - is shown
        "Spark": f"spark.read.format('paimon').load({location!r})",
        "pypaimon": (
            f"from pypaimon import CatalogFactory; t = CatalogFactory.create({catalog!r}).get_table({str(path)!r}); "
            "b = t.new_read_builder(); rows = b.new_read().to_arrow(b.new_scan().plan().splits())"
        ),
        "Trino": f'USE paimon."{path.database}"; SELECT * FROM "{path.table}"; -- a catalog of: {trino}',  # noqa: S608
    }


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
