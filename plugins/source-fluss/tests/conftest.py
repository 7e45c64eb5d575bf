"""One cluster for all tests that want one; where it cannot be had the reason is shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
KITS = (HERE / "kit", ROOT / "tests" / "core" / "kit", ROOT / "plugins" / "lake-paimon" / "tests" / "kit")
sys.path[:0] = map(str, KITS)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_paimon_kit.java import JavaReader
    from lakeward_source_fluss.rpc.releases import Release
    from lakeward_source_fluss_kit.clusters import LakeCluster
    from lakeward_source_fluss_kit.paimon import PaimonCluster


@pytest.fixture(params=["V0_9", "V1_0"])
def release(request: pytest.FixtureRequest) -> Release:
    """The release of a fake server: tests that want it run at both."""
    from lakeward_source_fluss.rpc.releases import Release  # noqa: PLC0415 - the path is set above

    return Release[request.param]


@pytest.fixture(scope="session")
def lake_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeCluster]:
    """A real Fluss cluster whose lake is Iceberg behind a REST catalog."""
    pytest.importorskip("fluss", reason="pyfluss writes the test data")
    rest_server = pytest.importorskip("lakeward_demo.rest_server", reason="the lake's catalog")
    from lakeward.errors import JavaError  # noqa: PLC0415 - where nothing is started nothing is loaded
    from lakeward_demo.fluss.jars import JarsMissingError  # noqa: PLC0415
    from lakeward_source_fluss_kit.clusters import lake_cluster as start  # noqa: PLC0415

    place = tmp_path_factory.mktemp("fluss")
    try:
        with (
            rest_server.RestCatalogServer.running(place / "warehouse") as catalog,
            start(place / "cluster", catalog.uri, catalog.warehouse) as cluster,
        ):
            yield cluster
    except (JarsMissingError, JavaError) as missing:
        pytest.skip(f"no Fluss cluster here: {missing}")


@pytest.fixture(scope="session")
def paimon_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaimonCluster]:
    """A real Fluss cluster whose lake is Paimon in a directory."""
    pytest.importorskip("fluss", reason="pyfluss writes the test data")
    pytest.importorskip("lakeward_lake_paimon", reason="the lake")
    from lakeward.errors import JavaError  # noqa: PLC0415 - where nothing is started nothing is loaded
    from lakeward_demo.fluss.jars import JarsMissingError  # noqa: PLC0415
    from lakeward_source_fluss_kit.paimon import paimon_cluster as start  # noqa: PLC0415

    place = tmp_path_factory.mktemp("paimon")
    try:
        with start(place / "cluster", place / "warehouse") as cluster:
            yield cluster
    except (JarsMissingError, JavaError) as missing:
        pytest.skip(f"no Fluss cluster here: {missing}")


@pytest.fixture(scope="session")
def paimon_reader() -> Iterator[JavaReader]:
    """Paimon's own reader in Java."""
    from lakeward_paimon_kit.java import java_reader  # noqa: PLC0415 - as above

    with java_reader() as reader:
        yield reader
