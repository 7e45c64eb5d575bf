"""pypaimon as a reader, in an environment and a process of its own: it wants an older pyarrow than the product."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VERSION = "2.1.0"
REQUIRED = "LAKEWARD_PAIMON_PYTHON"
"""Set to `required` where the reader has to be there: then its absence is a failure."""
_TIMEOUT_S = 600


class PythonReader:
    """Asks a process for the rows of a table. A request is a line of JSON, an answer the path of an Arrow file."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Use a process that runs `served.py`."""
        self._process = process

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[PythonReader]:
        """Start a process; skip, or fail where it is required, if pypaimon cannot be had."""
        python = python_with_pypaimon()
        script = Path(__file__).with_name("served.py")
        command = [str(python), str(script)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
            try:
                yield cls(process)
            finally:
                assert process.stdin is not None
                process.stdin.close()

    def rows(self, warehouse: str, table: str, catalog: Mapping[str, str] | None = None, **options: object) -> pa.Table:
        """Return the live rows of a table.

        Args:
            warehouse: the warehouse.
            table: `database.table`.
            catalog: further options of the catalog.
            options: those of a reader, such as `scan.snapshot-id`.
        """
        return self.scan(warehouse, table, catalog=catalog, options=options)[0]

    def scan(
        self,
        warehouse: str,
        table: str,
        where: tuple[object, ...] | None = None,
        catalog: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> tuple[pa.Table, int]:
        """Return live rows of a table, and how many data files they were read from.

        `where` is a method of pypaimon's predicate builder, the column, and perhaps a value.
        """
        told = None if where is None else [_told(one) for one in where]
        asked = {
            "warehouse": warehouse,
            "table": table,
            "catalog": catalog or {},
            "options": options or {},
            "where": told,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the process ended"}
        if "error" in answer:
            pytest.fail(f"pypaimon cannot read {table}: {answer['error']}")
        with pa.ipc.open_file(answer["file"]) as file:
            rows = file.read_all()
        Path(answer["file"]).unlink()
        return rows, int(answer["files"])


def _told(value: object) -> object:
    """Return a value as JSON has it; of those that it lacks, the type and a text."""
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, date | time):
        return [type(value).__name__, value.isoformat()]
    return ["Decimal", str(value)] if isinstance(value, Decimal) else value


def python_with_pypaimon() -> Path:
    """Return the Python of an environment with pypaimon, made once; skip, or fail where it is required, without it."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "lakeward" / f"pypaimon-{VERSION}-{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes run tests
        if (folder / "whole").is_file():
            return python
        try:
            _run([uv, "venv", "--clear", "--quiet", "--python", sys.executable, str(folder)])
            _run([uv, "pip", "install", "--quiet", "--python", str(python), f"pypaimon=={VERSION}"])
        except (OSError, subprocess.SubprocessError) as failed:
            _go_without(f"pypaimon {VERSION} cannot be installed: {failed}")
        (folder / "whole").touch()
    return python


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S)


def _go_without(why: str) -> NoReturn:
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{REQUIRED}=required, and pypaimon cannot be had: {why}")
    pytest.skip(why)
