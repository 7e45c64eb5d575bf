"""The how-to "move from the Flink tiering service", line by line; what Flink and pip do there is not run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_source_fluss_kit.clusters import LakeCluster

pytestmark = [pytest.mark.fluss, pytest.mark.spark, pytest.mark.slow]
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "move-from-the-flink-tiering-service.md"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
PATH = TablePath("move", "t")
_FENCE = re.compile(r"^ *```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_RUN_S = 180


@pytest.fixture
def cluster(lake_cluster: LakeCluster) -> Iterator[LakeCluster]:
    """A cluster with one lake-enabled table of 100 rows; it is dropped afterwards."""
    rows = pa.table({"id": range(100), "name": ["n"] * 100}, schema=SCHEMA)
    lake_cluster.writer.create(str(PATH), SCHEMA, properties=TIERED)
    lake_cluster.writer.append(str(PATH), rows)
    yield lake_cluster
    lake_cluster.drop(str(PATH))


def test_the_page_moves_a_cluster_as_it_says(cluster: LakeCluster, tmp_path: Path) -> None:
    if not PAGE.is_file():
        pytest.skip("the docs are not here")
    text = PAGE.read_text(encoding="utf-8")
    (config,) = [code for language, code in _FENCE.findall(text) if language == "toml"]
    for example, real in {
        "coordinator.example:9123": cluster.cluster.bootstrap,
        "http://catalog.example:8181": cluster.catalog_uri,
        '"lake"': f'"{cluster.warehouse}"',
    }.items():
        assert example in config
        config = config.replace(example, real)
    (tmp_path / "lakeward.toml").write_text(config, encoding="utf-8")

    said = {line: _run(tmp_path, line) for line in _lines(text)}

    assert list(said) == [
        "lakeward config check",
        "lakeward doctor",
        "lakeward run --once",
        "lakeward tables",
        "lakeward leases drop --all-of-service",
    ]
    assert f"the server's lake: iceberg (type=rest, uri={cluster.catalog_uri}" in said["lakeward doctor"]
    row = next(line for line in said["lakeward tables"].splitlines() if str(PATH) in line)
    assert re.search(r"\b100 +100 +none\b", row), row
    source = cluster.source()
    record = source.lake_record(source.table(PATH))
    source.close()
    assert record is not None
    assert sum(record.offsets.values()) == 100


def _lines(text: str) -> list[str]:
    """Return the page's lines that call Lakeward, but for the one that serves until it is told to stop."""
    blocks = [code for language, code in _FENCE.findall(text) if language == "console"]
    shown = [line.strip().removeprefix("$ ") for code in blocks for line in code.splitlines()]
    inline = re.findall(r"`(lakeward leases [^`]+)`", text)
    return [line for line in [*shown, *inline] if line.startswith("lakeward ") and line != "lakeward run"]


def _run(place: Path, line: str) -> str:
    words = [sys.executable, "-m", *shlex.split(line)]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("LAKEWARD_")}
    done = subprocess.run(
        words, cwd=place, env=environment, capture_output=True, encoding="utf-8", timeout=_RUN_S, check=False
    )
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    return done.stdout
