"""Deletion vectors in Puffin files: what is written is read back, by pyiceberg too, and damage is an error."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from lakeward.errors import CorruptFileError
from lakeward_lake_iceberg.puffin import pack_vector, read_vector, unpack_vector, write_vectors
from lakeward_lake_iceberg.storage import Storage

if TYPE_CHECKING:
    from lakeward_lake_iceberg.keys import Codes

POSITIONS = {
    "none": [],
    "one": [7],
    "a run": list(range(1000, 90_000)),
    "sparse": list(range(0, 1_000_000, 997)),
    "beyond 32 bits": [5, 2**32 - 1, 2**32, 3 * 2**32 + 9],
}


def codes(positions: list[int]) -> Codes:
    return np.array(positions, dtype=np.int64)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(f"file://{tmp_path}", {})


@pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS)
def test_positions_are_read_as_they_were_written(positions: list[int]) -> None:
    assert unpack_vector(pack_vector(codes(positions)), "a.puffin").tolist() == positions


def test_vectors_of_several_data_files_share_a_file_and_pyiceberg_reads_each(storage: Storage, tmp_path: Path) -> None:
    path = f"file://{tmp_path}/a.puffin"
    given = {f"file:///{name}.parquet": positions for name, positions in POSITIONS.items() if positions}
    placed, size = write_vectors(storage, path, [(target, codes(some)) for target, some in given.items()])
    content = Path(tmp_path / "a.puffin").read_bytes()
    assert size == len(content)
    assert [rows for _, rows in placed] == [len(some) for some in given.values()]
    assert [read_vector(storage, vector).tolist() for vector, _ in placed] == list(given.values())
    puffin = PuffinFile(content)
    assert [blob.properties["cardinality"] for blob in puffin.footer.blobs] == [str(rows) for _, rows in placed]
    read = deletion_vectors_from_puffin_file(puffin)
    assert {one.referenced_data_file: one.to_vector().to_pylist() for one in read} == given


def test_a_blob_has_the_bytes_of_the_specification() -> None:
    """Length and checksum are big-endian, the bitmap is little-endian (Puffin spec, "deletion-vector-v1")."""
    portable = struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 1, 9)
    body = bytes.fromhex("d1d33964") + struct.pack("<qi", 1, 0) + portable
    assert pack_vector(codes([1, 9])) == struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize(("place", "wrong"), [(3, "bytes"), (4, "bytes"), (20, "checksum"), (-1, "checksum")])
def test_a_damaged_vector_is_an_error_that_names_the_file(place: int, wrong: str) -> None:
    blob = bytearray(pack_vector(codes([1, 2, 3])))
    blob[place] ^= 1
    with pytest.raises(CorruptFileError, match=rf"^a\.puffin: expected a deletion vector .*{wrong}"):
        unpack_vector(bytes(blob), "a.puffin")
