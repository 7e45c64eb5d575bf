"""Everything is read without numba too."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["numba"] = None
import pyarrow as pa
from lakeward_fluss.formats import compiled
from lakeward_fluss.formats.encodings import Encoding
from lakeward_fluss.formats.logbatch import LogFormat, decode, iter_batches
from lakeward_fluss.formats.schema import FlussSchema
from lakeward_fluss.formats.types import FlussField, FlussType, Kind
assert not compiled.AVAILABLE
schema = FlussSchema((FlussField("id", FlussType(Kind.INTEGER)), FlussField("s", FlussType(Kind.STRING))))
raw = bytes.fromhex(sys.argv[1])
(batch,) = iter_batches(memoryview(raw), LogFormat.COMPACTED)
print(decode(batch, schema, schema.to_arrow()).to_pylist(), batch.changes.tolist())
"""
LOG = (
    "640000000000000036000000000000000000000000d1f92e9001000001000000070000000000000003000000"
    "02000000070000000100010361626303000000040202"
)


def test_a_log_is_read_where_numba_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, LOG], capture_output=True, encoding="utf-8", check=True, timeout=60
    )
    assert done.stdout.strip() == "[{'id': 1, 's': 'abc'}, {'id': 2, 's': None}] [1, 4]"


def test_schemas_are_read_without_loading_kernels() -> None:
    program = "import sys, lakeward_fluss.formats.schema; print('numba' in sys.modules, 'rocksdict' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True, timeout=60
    )
    assert done.stdout.strip() == "False False"
