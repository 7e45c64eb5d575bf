"""What other writers claim of a file is compared with it: sort orders, bounds in lists and maps, deletion vectors."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, ListType, LongType, MapType, NestedField, StringType, StructType
from pyroaring import BitMap

from lakeward.errors import LakeError
from lakeward.model.results import CommitIds
from lakeward_lake_iceberg.commit import SnapshotBuilder
from lakeward_lake_iceberg.manifests import ManifestSet
from lakeward_lake_iceberg.positions import PATH_ID
from lakeward_testing.lake_tables import PATH, head_of

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward_lake_iceberg.lake import IcebergLake

pytestmark = pytest.mark.slow

NAN, HIGH = float("nan"), "￿\U00010000"
ASC, DESC, FIRST, LAST = SortDirection.ASC, SortDirection.DESC, NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST
FLAT = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "d", DoubleType()),
    NestedField(4, "f", FloatType()),
)
NESTED = Schema(
    NestedField(1, "tags", ListType(3, StringType(), element_required=False)),
    NestedField(
        2, "scores", MapType(4, StringType(), 5, StructType(NestedField(6, "n", LongType())), value_required=False)
    ),
)


def file_of(catalog: SqlCatalog, schema: Schema, rows: dict[str, list[Any]], **claims: Any) -> DataFile:  # noqa: ANN401
    """Make the table `shop.orders` with one file of which something is claimed."""
    order, spec = claims.pop("order", SortOrder()), claims.pop("spec", UNPARTITIONED_PARTITION_SPEC)
    catalog.create_namespace_if_not_exists("shop")
    table = catalog.create_table("shop.orders", schema, partition_spec=spec, sort_order=order)
    path = f"{table.location()}/one.parquet"
    # Small row groups: an order holds from one batch to the next.
    pq.write_table(pa.table(rows, schema_to_pyarrow(schema)), path.removeprefix("file://"), row_group_size=2)
    said: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": path,
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": len(next(iter(rows.values()))),
        "file_size_in_bytes": len(table.io.new_input(path)),
    }
    file = DataFile.from_args(**said | claims)
    with table.transaction() as change, change.update_snapshot().fast_append() as files:
        files.append_data_file(file)
    return file


def found(lake: IcebergLake) -> list[tuple[str, str, str]]:
    """What is wrong in the head's files."""
    snapshot = head_of(lake).snapshot_id or 0
    return [(one.what, one.expected, one.found) for one in lake.check_files(PATH, snapshot, None)]


@pytest.mark.parametrize(
    ("fields", "rows"),
    [
        ([(1, ASC, FIRST)], {"id": [None, None, -1, 2, 2, 9]}),
        ([(1, DESC, LAST)], {"id": [9, 2, 2, -1, None, None]}),
        ([(1, DESC, FIRST)], {"id": [None, 2, 2, -1, -1, -5]}),
        ([(2, ASC, LAST)], {"name": ["", "a", "ab", HIGH[0], HIGH[1], None]}),
        ([(3, ASC, FIRST)], {"d": [None, -1.0, 0.0, -0.0, 1.0, NAN]}),
        ([(4, DESC, LAST)], {"f": [NAN, 1.0, -0.0, 0.0, -1.0, None]}),
        ([(2, ASC, FIRST), (1, DESC, LAST)], {"name": ["a", "a", "a", "b", "b", "c"], "id": [3, 2, None, 9, 8, 10]}),
        (
            [(1, ASC, FIRST, TruncateTransform(10)), (2, ASC, FIRST)],
            {"id": [9, 1, 5, 11, 10, 30], "name": list("abcdez")},
        ),
        ([(1, ASC, FIRST, BucketTransform(4))], {"id": [3, 3, 3, 3, 3, 3]}),
    ],
    ids=str,
)
def test_a_sort_order_is_compared_with_the_rows(
    lake: IcebergLake, catalog: SqlCatalog, fields: list[tuple[Any, ...]], rows: dict[str, list[Any]]
) -> None:
    sorts = [SortField(one, (*rest, IdentityTransform())[0], way, nulls) for one, way, nulls, *rest in fields]
    filled = {field.name: rows.get(field.name, [None] * 6) for field in FLAT.fields}
    file_of(catalog, FLAT, filled, order=SortOrder(*sorts), sort_order_id=1)
    assert found(lake) == []


@pytest.mark.parametrize(
    ("ids", "place"),
    [([0, 1, 3, 2, 4, 5], 3), ([1, 2, 1, 2, 1, 2], 2), ([0, 0, 0, 0, 0, None], 5), ([6, 5, 6, 7, 8, 9], 1)],
)
def test_the_first_row_that_is_out_of_order_is_named(
    lake: IcebergLake, catalog: SqlCatalog, ids: list[int | None], place: int
) -> None:
    rows = {"id": ids} | {name: [None] * 6 for name in ("name", "d", "f")}
    file_of(catalog, FLAT, rows, order=SortOrder(SortField(1)), sort_order_id=1)
    assert found(lake) == [("sort order", f"row {place} comes before row {place - 1}", "id ASC NULLS FIRST")]


def test_a_file_that_claims_no_order_may_have_any(lake: IcebergLake, catalog: SqlCatalog) -> None:
    rows = {"id": [2, 1]} | {name: [None] * 2 for name in ("name", "d", "f")}
    file_of(catalog, FLAT, rows, order=SortOrder(SortField(1)), sort_order_id=0)
    assert found(lake) == []


NESTED_ROWS: dict[str, list[Any]] = {
    "tags": [["b", None], None, [], ["d"]],
    "scores": [None, [("k", {"n": 5}), ("l", None)], [("m", {"n": -3})], []],
}


def _long(value: int) -> bytes:
    return struct.pack("<q", value)


@pytest.mark.parametrize(
    ("lower", "upper", "wrong"),
    [
        ({3: b"b", 4: b"k", 6: _long(-3)}, {3: b"d", 4: b"m", 6: _long(5)}, []),
        ({3: b"a"}, {6: _long(9)}, []),
        ({3: b"c"}, {}, [("lower bound of column tags.element", "'b'", "'c'")]),
        ({}, {4: b"l"}, [("upper bound of column scores.key", "'m'", "'l'")]),
        ({6: _long(0)}, {6: _long(4)}, [("lower bound of column scores.value.n", "-3", "0"),
                                        ("upper bound of column scores.value.n", "5", "4")]),
    ],
)  # fmt: skip
def test_bounds_in_lists_and_maps_enclose_their_values(
    lake: IcebergLake, catalog: SqlCatalog, lower: dict[int, bytes], upper: dict[int, bytes], wrong: list[Any]
) -> None:
    # How other writers count values in lists and maps differs, and readers leave out nothing by it.
    file_of(catalog, NESTED, NESTED_ROWS, lower_bounds=lower, upper_bounds=upper, value_counts={3: 3, 4: 9})
    assert found(lake) == wrong


@pytest.mark.parametrize("column", ["d", "f"])
@pytest.mark.parametrize(
    ("values", "bounds", "wrong"),
    [
        ([0.0, -0.0, None], (-0.0, 0.0), []),
        ([0.0, 0.0, 1.0], (-0.0, 1.0), []),
        ([-0.0, 0.0, 1.0], (0.0, 1.0), [("lower bound", "-0.0", "0.0")]),
        ([-1.0, -0.0, 0.0], (-1.0, -0.0), [("upper bound", "0.0", "-0.0")]),
        ([-0.0, -0.0, NAN], (-0.0, -0.0), []),
    ],
    ids=str,
)
def test_zeros_of_both_signs_are_two_values_in_bounds(  # noqa: PLR0917 - parameters
    lake: IcebergLake,
    catalog: SqlCatalog,
    column: str,
    values: list[float | None],
    bounds: tuple[float, float],
    wrong: list[tuple[str, str, str]],
) -> None:
    key, layout = {"d": (3, "<d"), "f": (4, "<f")}[column]
    lower, upper = ({key: struct.pack(layout, one)} for one in bounds)
    filled = {field.name: values if field.name == column else [None] * 3 for field in FLAT.fields}
    file_of(catalog, FLAT, filled, lower_bounds=lower, upper_bounds=upper)
    assert found(lake) == [(f"{what} of column {column}", has, said) for what, has, said in wrong]


@pytest.mark.parametrize("column", ["d", "f"])
@pytest.mark.parametrize(
    ("value", "said", "right"),
    [
        (0.1, 0.1, True),
        (0.1, 0.2, False),
        (NAN, NAN, True),
        (NAN, 1.0, False),
        (1.0, NAN, False),
        (0.0, 0.0, True),
        (-0.0, -0.0, True),
        (0.0, -0.0, False),
        (-0.0, 0.0, False),
        (float("-inf"), float("-inf"), True),
        (None, None, True),
        (None, 0.0, False),
    ],
)
def test_a_partition_of_a_floating_point_number_has_its_value(
    lake: IcebergLake, catalog: SqlCatalog, column: str, value: float | None, said: float | None, *, right: bool
) -> None:
    rows: dict[str, list[Any]] = {field.name: [None, None] for field in FLAT.fields} | {column: [value, value]}
    spec = PartitionSpec(PartitionField(FLAT.find_field(column).field_id, 1000, IdentityTransform(), "part"))
    file_of(catalog, FLAT, rows, spec=spec, partition=Record(said))
    assert [what for what, _, _ in found(lake)] == ([] if right else ["partition field part"])


def test_an_order_holds_from_one_batch_of_a_file_to_the_next(lake: IcebergLake, catalog: SqlCatalog) -> None:
    count = 1 << 16  # rows of a batch
    rows = {"id": [*range(count), 0, 1]} | {name: [None] * (count + 2) for name in ("name", "d", "f")}
    file_of(catalog, FLAT, rows, order=SortOrder(SortField(1)), sort_order_id=1)
    assert found(lake) == [("sort order", f"row {count} comes before row {count - 1}", "id ASC NULLS FIRST")]


def puffin(path: str, positions: list[int]) -> bytes:
    """Return a Puffin file with the deletion vector of one data file (Puffin spec, "deletion-vector-v1")."""
    vector = bytes.fromhex("d1d33964") + struct.pack("<qi", 1, 0) + BitMap(positions).serialize()
    blob = struct.pack(">i", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    blobs: dict[str, Any] = {"type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1}
    blobs |= {"offset": 4, "length": len(blob), "properties": {"referenced-data-file": path}}
    footer = json.dumps({"blobs": [blobs]}).encode()
    return b"PFA1" + blob + b"PFA1" + footer + struct.pack("<ii", len(footer), 0) + b"PFA1"


def delete_by_vector(catalog: SqlCatalog, target: DataFile, positions: list[int], **claims: Any) -> None:  # noqa: ANN401
    """Commit a deletion vector, as engines do in tables of format version 3."""
    table = catalog.load_table("shop.orders")
    path = f"{table.location()}/deletes.puffin"
    content = puffin(target.file_path, positions)
    Path(path.removeprefix("file://")).write_bytes(content)
    said: dict[str, Any] = {
        "file_path": path,
        "record_count": len(positions),
        "file_size_in_bytes": len(content),
    } | claims
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_format=FileFormat.PUFFIN, partition=Record(), **said
    )
    file.spec_id = table.spec().spec_id
    ids = CommitIds(str(uuid4()), 7)
    builder = SnapshotBuilder(table, ids, 0)
    added = ManifestSet(table.metadata, table.io, 7, builder._new_manifest).added([file], ManifestContent.DELETES)
    prepared = builder._finish([*builder._base(), *added], Operation.DELETE, {}, {}, {})
    catalog.commit_table(table, prepared.requirements, prepared.updates)


@pytest.mark.parametrize(
    ("positions", "claims", "wrong"),
    [
        ([1, 2], {}, []),
        ([1], {"file_size_in_bytes": 3}, ["size"]),
        ([1, 4], {}, ["positions in a data file of so many rows"]),
    ],
)
def test_deletion_vectors_are_read_and_compared(
    lake: IcebergLake, catalog: SqlCatalog, positions: list[int], claims: dict[str, Any], wrong: list[str]
) -> None:
    rows = {"id": [0, 1, 2, 3]} | {name: [None] * 4 for name in ("name", "d", "f")}
    delete_by_vector(catalog, file_of(catalog, FLAT, rows), positions, **claims)
    assert [what for what, _, _ in found(lake)] == wrong
    left = [one for batch in lake.read_rows(PATH, 7) for one in batch["id"].to_pylist()]
    assert left == [one for one in range(4) if one not in positions]


def test_a_wrong_count_of_a_vector_whose_bounds_name_its_data_file_is_found(
    lake: IcebergLake, catalog: SqlCatalog
) -> None:
    target = file_of(catalog, FLAT, {"id": [0, 1, 2]} | {name: [None] * 3 for name in ("name", "d", "f")})
    bound = {PATH_ID: target.file_path.encode()}
    delete_by_vector(catalog, target, [1, 2], record_count=1, lower_bounds=bound, upper_bounds=bound)
    assert found(lake) == [("row count", "2", "1")]


@pytest.mark.parametrize("broken", [b"referenced-data-file", b"PFA1"], ids=["names no data file", "no Puffin file"])
def test_a_deletion_vector_that_cannot_be_read_is_an_error_in_words(
    lake: IcebergLake, catalog: SqlCatalog, broken: bytes
) -> None:
    rows = {"id": [0, 1]} | {name: [None] * 2 for name in ("name", "d", "f")}
    delete_by_vector(catalog, file_of(catalog, FLAT, rows), [1])
    (task,) = catalog.load_table("shop.orders").scan().plan_files()
    path = Path(next(iter(task.delete_files)).file_path.removeprefix("file://"))
    path.write_bytes(path.read_bytes().replace(broken, broken[::-1]))
    for read in (lake.read_rows(PATH, 7), lake.check_files(PATH, 7, None)):
        with pytest.raises(LakeError, match=r"(deletes\.puffin|one\.parquet) of snapshot 7 cannot be read"):
            list(read)
