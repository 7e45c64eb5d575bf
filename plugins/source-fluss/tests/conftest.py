"""One cluster for all tests that want one; where it cannot be had the reason is shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "kit"), str(HERE.parents[2] / "tests" / "core" / "kit")]

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_source_fluss.rpc.releases import Release
    from lakeward_source_fluss_kit.clusters import LakeCluster


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
