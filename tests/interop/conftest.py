"""A Fluss cluster, its lake, Flink, and our service, in turn on the same tables."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"
sys.path[:0] = [str(PLUGINS / name / "tests" / "kit") for name in ("source-fluss", "lake-paimon")]

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward_source_fluss_kit.clusters import LakeCluster
    from lakeward_source_fluss_kit.flink import Flink
    from lakeward_source_fluss_kit.paimon import PaimonCluster

NEEDED = ("fluss", "pyflink", "duckdb_extension_iceberg")


@pytest.fixture(scope="session")
def lake_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeCluster]:
    """A real Fluss cluster whose lake is Iceberg behind a REST catalog."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"tox run -e interop brings what is missing: {', '.join(missing)}")
    from lakeward.errors import JavaError  # noqa: PLC0415 - where it is skipped nothing is loaded
    from lakeward_demo.fluss.jars import JarsMissingError  # noqa: PLC0415 - as above
    from lakeward_demo.rest_server import RestCatalogServer  # noqa: PLC0415 - as above
    from lakeward_source_fluss_kit.clusters import lake_cluster as start  # noqa: PLC0415 - as above

    place = tmp_path_factory.mktemp("interop")
    try:
        with (
            RestCatalogServer.running(place / "warehouse") as catalog,
            start(place / "cluster", catalog.uri, catalog.warehouse) as cluster,
        ):
            yield cluster
    except (JarsMissingError, JavaError) as missing:
        pytest.skip(f"no Fluss cluster here: {missing}")


@pytest.fixture(scope="session")
def flink(lake_cluster: LakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Flink:
    """Flink beside that cluster."""
    options = {"type": "rest", "uri": lake_cluster.catalog_uri, "warehouse": lake_cluster.warehouse}
    return start_flink(tmp_path_factory.mktemp("flink"), lake_cluster.cluster.bootstrap, "iceberg", options)


@pytest.fixture(scope="session")
def paimon_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaimonCluster]:
    """A real Fluss cluster whose lake is Paimon in a directory."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"tox run -e interop brings what is missing: {', '.join(missing)}")
    from lakeward.errors import JavaError  # noqa: PLC0415 - where it is skipped nothing is loaded
    from lakeward_demo.fluss.jars import JarsMissingError  # noqa: PLC0415 - as above
    from lakeward_source_fluss_kit.paimon import paimon_cluster as start  # noqa: PLC0415 - as above

    place = tmp_path_factory.mktemp("paimon")
    try:
        with start(place / "cluster", place / "warehouse") as cluster:
            yield cluster
    except (JarsMissingError, JavaError) as absent:
        pytest.skip(f"no Fluss cluster here: {absent}")


@pytest.fixture(scope="session")
def paimon_flink(paimon_cluster: PaimonCluster, tmp_path_factory: pytest.TempPathFactory) -> Flink:
    """Flink beside that cluster."""
    options = {"metastore": "filesystem", "warehouse": str(paimon_cluster.warehouse)}
    return start_flink(tmp_path_factory.mktemp("flink"), paimon_cluster.cluster.bootstrap, "paimon", options)


def start_flink(place: Path, bootstrap: str, lake: str, options: Mapping[str, str]) -> Flink:
    """Find Flink's jars; skip, and say why, where they cannot be had."""
    from lakeward_demo.fluss.jars import JarsMissingError  # noqa: PLC0415 - where it is skipped nothing is loaded
    from lakeward_source_fluss_kit.flink import Flink  # noqa: PLC0415 - as above

    try:
        return Flink(place, bootstrap, lake, options)
    except JarsMissingError as missing:
        pytest.skip(f"no Flink here: {missing}")
