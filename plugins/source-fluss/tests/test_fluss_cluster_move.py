"""The how-to "move from the Flink tiering service", line by line; what Flink and pip do there is not run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward_source_fluss.source.source import FlussSource
    from lakeward_source_fluss_kit.clusters import LakeCluster
    from lakeward_source_fluss_kit.paimon import PaimonCluster

pytestmark = [pytest.mark.fluss, pytest.mark.spark, pytest.mark.slow]
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "move-from-the-flink-tiering-service.md"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
PATH = TablePath("move", "t")
_FENCE = re.compile(r"^ *```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_RUN_S = 180


@pytest.fixture
def page() -> str:
    """The page; its lines for Paimon are in a section of their own."""
    if not PAGE.is_file():
        pytest.skip("the docs are not here")
    return PAGE.read_text(encoding="utf-8")


def test_the_page_moves_a_cluster_as_it_says(page: str, lake_cluster: LakeCluster, tmp_path: Path) -> None:
    real = {"http://catalog.example:8181": lake_cluster.catalog_uri, '"lake"': f'"{lake_cluster.warehouse}"'}
    config = _filled(_config(_without_paimon(page)), lake_cluster.cluster.bootstrap, real)

    with _table(lake_cluster):
        said = _follow(page, config, tmp_path)
        assert f"the server's lake: iceberg (type=rest, uri={lake_cluster.catalog_uri}" in said["lakeward doctor"]
        with closing(lake_cluster.source()) as source:
            _is_registered(source)


def test_the_page_moves_a_cluster_with_paimon_as_it_says(
    page: str, paimon_cluster: PaimonCluster, tmp_path: Path
) -> None:
    iceberg, paimon = _config(_without_paimon(page)), _config(_paimon(page))
    config = re.sub(r"\[lake\]\n(?:.+\n)+", lambda _: paimon, iceberg)
    config = _filled(config, paimon_cluster.cluster.bootstrap, {"/data/warehouse": str(paimon_cluster.warehouse)})

    with _table(paimon_cluster):
        said = _follow(page, config, tmp_path)
        assert "the server's lake: paimon (metastore=filesystem" in said["lakeward doctor"]
        with paimon_cluster.source() as source:
            _is_registered(source)


@contextmanager
def _table(cluster: LakeCluster | PaimonCluster) -> Iterator[None]:
    """Have one lake-enabled table of 100 rows; it is dropped afterwards."""
    rows = pa.table({"id": range(100), "name": ["n"] * 100}, schema=SCHEMA)
    cluster.writer.create(str(PATH), SCHEMA, properties=TIERED)
    try:
        cluster.writer.append(str(PATH), rows)
        yield
    finally:
        cluster.drop(str(PATH))


def _paimon(page: str) -> str:
    return page[page.index("## Paimon tables") : page.index("## Batch reads")]


def _without_paimon(page: str) -> str:
    return page.replace(_paimon(page), "")


def _config(text: str) -> str:
    (config,) = [str(code) for language, code in _FENCE.findall(text) if language == "toml"]
    return config


def _filled(config: str, bootstrap: str, real: Mapping[str, str]) -> str:
    """Return a configuration with what is really there in place of the page's examples."""
    for example, there in {"coordinator.example:9123": bootstrap, **real}.items():
        assert example in config
        config = config.replace(example, there)
    return config


def _follow(page: str, config: str, place: Path) -> dict[str, str]:
    """Write a configuration, run the page's lines there and return what each printed."""
    (place / "lakeward.toml").write_text(config, encoding="utf-8")
    said = {line: _run(place, line) for line in _lines(page)}
    assert list(said) == [
        "lakeward config check",
        "lakeward doctor",
        "lakeward run --once",
        "lakeward tables",
        "lakeward leases drop --all-of-service",
    ]
    row = next(line for line in said["lakeward tables"].splitlines() if str(PATH) in line)
    assert re.search(r"\b100 +100 +none\b", row), row
    return said


def _is_registered(source: FlussSource) -> None:
    record = source.lake_record(source.table(PATH))
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
