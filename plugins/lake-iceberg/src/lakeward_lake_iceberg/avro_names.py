"""Avro files whose schema defines each named type once, which pyiceberg's own writer does not see to.

Avro names `fixed` types, and pyiceberg names them by what they hold: two partition fields of `decimal(9, 2)` would both
define `decimal_9_2`. pyiceberg reads such a file, Iceberg's Java and DuckDB do not. Here the second one is called
`decimal_9_2_2`. A reference to the first one is what Java writes, but pyiceberg cannot read that.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, CODEC_MAPPING_ICEBERG_TO_AVRO
from pyiceberg.avro.file import MAGIC, META_SCHEMA, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.typedef import StructProtocol
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

D = TypeVar("D", bound=StructProtocol)


class NamingOutputFile(AvroOutputFile[D]):
    """pyiceberg's, with a schema whose named types have a name each."""

    def _write_header(self) -> None:
        """Write the header as pyiceberg does, apart from the names."""
        schema: Any = AvroSchemaConversion().iceberg_to_avro(self.file_schema, schema_name=self.schema_name)
        codec = self.metadata[AVRO_CODEC_KEY]
        meta = {
            **self.metadata,
            "avro.schema": json.dumps(with_unique_names(schema)),
            AVRO_CODEC_KEY: CODEC_MAPPING_ICEBERG_TO_AVRO.get(codec, codec),
        }
        construct_writer(META_SCHEMA).write(self.encoder, AvroFileHeader(MAGIC, meta, self.sync_bytes))


def with_unique_names(schema: Any) -> Any:  # noqa: ANN401 - any part of an Avro schema
    """Return an Avro schema in which no two `fixed` types have one name; records are named by their field's id."""
    return _with_unique_names(schema, set())


def _with_unique_names(part: Any, taken: set[str]) -> Any:  # noqa: ANN401 - as above
    if isinstance(part, list):
        return [_with_unique_names(one, taken) for one in part]
    if not isinstance(part, dict):
        return part
    result = {key: _with_unique_names(value, taken) for key, value in part.items()}
    if result.get("type") == "fixed":
        first = name = result["name"]
        number = 1
        while name in taken:
            number += 1
            name = f"{first}_{number}"
        taken.add(name)
        result["name"] = name
    return result
