"""The byte form in which a table's spec travels to the subtasks: msgpack, with its schema as Arrow IPC.

Apart from `TableSpec`, so that whoever only names one does without Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec
import pyarrow as pa

from lakeward.model.partitioning import PartitionField
from lakeward.model.tables import TableSpec

_NAMES = {"pa": pa, "Mapping": Mapping, "PartitionField": PartitionField}
_TYPES = get_type_hints(TableSpec, localns=_NAMES)


def _write_schema(schema: pa.Schema) -> bytes:
    data: bytes = schema.serialize().to_pybytes()
    return data


def _read_schema(_type: type, data: bytes) -> Any:  # noqa: ANN401 - as msgspec wants it
    return pa.ipc.read_schema(pa.py_buffer(data))


_TABLES = msgspec.msgpack.Decoder(msgspec.defstruct("Table", list(_TYPES.items())), dec_hook=_read_schema)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def pack_table(table: TableSpec) -> bytes:
    """Encode a spec."""
    return msgspec.msgpack.encode(table, enc_hook=_write_schema)


def unpack_table(data: bytes) -> TableSpec:
    """Decode what `pack_table` gave."""
    return TableSpec(**msgspec.structs.asdict(_TABLES.decode(data)))
