"""Writes and reads the deleted rows of data files: position-delete files, and deletion vectors of format version 3.

Source: Iceberg spec, "Position Delete Files" and "Deletion Vectors".
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.local_files import storage_errors
from lakeward.model.results import LakeFile
from lakeward_lake_iceberg.detail import FileDetail, Vector, pack_detail
from lakeward_lake_iceberg.parquet_fields import FIELD_ID
from lakeward_lake_iceberg.puffin import read_vector, write_vectors

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from lakeward_lake_iceberg.detail import DeleteFile, Value
    from lakeward_lake_iceberg.keys import Codes
    from lakeward_lake_iceberg.storage import Storage

PATH_ID = 2147483546
POSITION_ID = 2147483545
SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={FIELD_ID: str(PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: str(POSITION_ID)}),
    ]
)
GROUP_BYTES = 64 * 1024 * 1024
"""Most bytes of paths in a row group: Arrow's text arrays are limited to 2 GiB, and each row repeats the path."""


@dataclass(frozen=True, slots=True)
class DeletePlace:
    """Where a delete file lies: where its data file does. `writer` and `base_snapshot` as in `FileDetail`."""

    spec_id: int
    partition: tuple[Value, ...]
    writer: tuple[int, bytes] | None = None
    base_snapshot: int | None = None


def write_positions(
    storage: Storage,
    target: str,
    path: str,
    positions: Codes,
    *,
    compression: str,
    place: DeletePlace,
    replaces: tuple[DeleteFile, ...] = (),
) -> LakeFile:
    """Write the positions (ascending, each once) of rows of the data file `target` that are no more, as file `path`.

    `place` has the data file's spec and partition; `replaces` are older delete files whose positions are contained.

    Raises:
        StorageError: the storage refused.
    """
    rows = {target: positions}
    return write_shared_positions(storage, path, rows, compression=compression, place=place, replaces=replaces)


def write_shared_positions(
    storage: Storage,
    path: str,
    rows: Mapping[str, Codes],
    *,
    compression: str,
    place: DeletePlace,
    replaces: tuple[DeleteFile, ...] = (),
) -> LakeFile:
    """Write deletes of several data files of one partition, by their paths; as `write_positions`."""
    targets = sorted(rows, key=str.encode)
    first, last = ({PATH_ID: one.encode("utf-8")} for one in (targets[0], targets[-1]))
    sink = storage.create(path)
    with storage_errors(path):
        with pq.ParquetWriter(
            sink,
            SCHEMA,
            compression=compression,
            use_dictionary=["file_path"],
            column_encoding={"pos": "DELTA_BINARY_PACKED"},
        ) as writer:
            for target in targets:
                group_rows = max(1, GROUP_BYTES // len(target.encode("utf-8")))
                for start in range(0, len(rows[target]), group_rows):
                    writer.write_table(_rows(target, rows[target][start : start + group_rows]))
        size = int(sink.tell())
        sink.close()
    detail = FileDetail(
        partition=place.partition,
        spec_id=place.spec_id,
        lower=first,
        upper=last,
        references=targets[0] if len(targets) == 1 else None,
        replaces=replaces,
        base_snapshot=place.base_snapshot,
        writer=place.writer,
    )
    return LakeFile(path, "deletes", sum(map(len, rows.values())), size, pack_detail(detail))


def write_vector(
    storage: Storage, target: str, path: str, positions: Codes, *, place: DeletePlace, replaces: tuple[DeleteFile, ...]
) -> LakeFile:
    """Write the positions as the deletion vector of a data file, alone in file `path`; as `write_positions`."""
    ((vector, rows),), size = write_vectors(storage, path, [(target, positions)])
    return vector_file(target, vector, rows, size, place, replaces)


def vector_file(  # noqa: PLR0917 - what is said of one
    target: str, vector: Vector, rows: int, size: int, place: DeletePlace, replaces: tuple[DeleteFile, ...] = ()
) -> LakeFile:
    """Describe a deletion vector; `size` is that of its file.

    Its bounds name the data file, as those of position deletes do: pyiceberg finds it by them.
    """
    bound = {PATH_ID: target.encode("utf-8")}
    detail = FileDetail(
        partition=place.partition,
        spec_id=place.spec_id,
        lower=bound,
        upper=bound,
        references=target,
        replaces=replaces,
        vector=(vector.offset, vector.size),
        base_snapshot=place.base_snapshot,
        writer=place.writer,
    )
    return LakeFile(vector.path, "deletes", rows, size, pack_detail(detail))


def delete_file_of(file: LakeFile, detail: FileDetail) -> DeleteFile:
    """Return what a delete file of a writer is called."""
    return file.path if detail.vector is None else Vector(file.path, *detail.vector)


def union(parts: Iterable[Codes]) -> Codes:
    """Return all positions of some parts, ascending and each once.

    The parts are mostly ascending: sorting merges them. `np.unique` hashes, and takes a hundred times as long for a
    million.
    """
    merged = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *parts]), kind="stable")
    new = np.ones(len(merged), dtype=np.bool_)
    np.not_equal(merged[1:], merged[:-1], out=new[1:])
    return merged[new]


def read_positions(storage: Storage, files: Iterable[DeleteFile], target: str) -> Codes:
    """Return the deleted positions of one data file from existing deletes, ascending."""
    found: list[Codes] = []
    for path in files:
        if isinstance(path, Vector):
            found.append(read_vector(storage, path))
        else:
            found += (positions for _, positions in _in_file(storage, path, {target}))
    return union(found)


def read_shared_positions(storage: Storage, files: Iterable[str], targets: Container[str]) -> dict[str, Codes]:
    """Return the deleted positions of those data files, by their paths, of which files of position deletes have any."""
    found: dict[str, list[Codes]] = defaultdict(list)
    for path in files:
        for target, positions in _in_file(storage, path, targets):
            found[target].append(positions)
    merged = {target: union(some) for target, some in found.items()}
    return {target: positions for target, positions in merged.items() if len(positions)}


def _in_file(storage: Storage, path: str, targets: Container[str]) -> Iterator[tuple[str, Codes]]:
    with storage_errors(path), storage.open(path) as source:
        # As a dictionary: written out, the path in each row can be gigabytes.
        file = pq.ParquetFile(source, read_dictionary=["file_path"])
        for batch in file.iter_batches(columns=["file_path", "pos"]):
            names = batch.column("file_path")
            for number, target in enumerate(names.dictionary.to_pylist()):
                if target in targets:
                    yield target, batch.column("pos").filter(pc.equal(names.indices, number)).to_numpy()


def _rows(target: str, positions: Codes) -> pa.Table:
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(positions), dtype=np.int32)), pa.array([target]))
    return pa.table([names.cast(pa.string()), pa.array(positions, pa.int64())], schema=SCHEMA)
