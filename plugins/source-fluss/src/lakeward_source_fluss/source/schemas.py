"""The schemas that a table has and had, as a reader of today sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import TableError
from lakeward_source_fluss.formats.schema import FlussSchema, parse_schema
from lakeward_source_fluss.source.naming import naming_release, naming_right
from lakeward_source_fluss.source.tables import wire_path
from lakeward_source_fluss.wire.messages import GetTableSchemaRequest

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward_source_fluss.rpc.client import FlussClient


class TableSchemas(dict[int, FlussSchema]):
    """Schemas by id, each with the column names of the table's schema in the round; fetched when first asked for."""

    def __init__(self, client: FlussClient, table: TableSpec) -> None:
        """Use an open client; `table` says which schema is today's."""
        super().__init__()
        self._client = client
        self._table = table
        self._current: FlussSchema | None = None

    def __missing__(self, schema_id: int) -> FlussSchema:
        """Fetch a schema.

        Raises:
            TableError: it is newer than the round's: its new columns would be lost. The round is tried again.
        """
        if schema_id > self._table.schema_id:
            message = (
                f"table {self._table.path}: expected schemas up to {self._table.schema_id}, found {schema_id}: "
                "the table was changed while the round ran; the next one takes the new columns in"
            )
            raise TableError(message)
        if self._current is None:
            self._current = self._fetch(self._table.schema_id)
        self[schema_id] = self._fetch(schema_id).seen_as(self._current)
        return self[schema_id]

    def _fetch(self, schema_id: int) -> FlussSchema:
        request = GetTableSchemaRequest(table_path=wire_path(self._table.path), schema_id=schema_id)
        with naming_release(self._client), naming_right(request.api, self._table.path):
            return parse_schema(self._client.call_any(request).schema_json)
