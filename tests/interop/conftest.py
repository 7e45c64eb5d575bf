"""A Fluss cluster, its lake, Flink, and our service, in turn on the same tables."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "source-fluss" / "tests" / "kit"))

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_source_fluss_kit.clusters import LakeCluster
    from lakeward_source_fluss_kit.flink import Flink

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
    from lakeward_demo.fluss.jars import JarsMissingError  # noqa: PLC0415 - where it is skipped nothing is loaded
    from lakeward_source_fluss_kit.flink import Flink  # noqa: PLC0415 - as above

    place = tmp_path_factory.mktemp("flink")
    try:
        return Flink(place, lake_cluster.cluster.bootstrap, lake_cluster.catalog_uri, lake_cluster.warehouse)
    except JarsMissingError as missing:
        pytest.skip(f"no Flink here: {missing}")
