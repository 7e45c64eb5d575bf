"""The core's suite for sources, on a real cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward_source_fluss.source.plugin import FlussSourcePlugin
from lakeward_testing.source_conformance import SourceConformance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_source_fluss_kit.clusters import LakeCluster
    from lakeward_source_fluss_kit.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.slow]
QUEUE = ("handed", "kept", "silent", "finish", "forced", "coordinator", "made_due")
"""Words in the names of the tests that need a table in the tiering queue."""


class TestFlussSource(SourceConformance):
    __test__ = True
    published = FlussSourcePlugin

    has_empty_batches = False  # of log tables; those of primary-key tables have a test of their own
    can_be_old = False
    can_make_due = False

    @pytest.fixture
    def world(self, lake_cluster: LakeCluster, request: pytest.FixtureRequest) -> Iterator[FlussWorld]:
        from lakeward_source_fluss_kit.world import FlussWorld  # noqa: PLC0415 - without a cluster nothing of it is needed

        name = request.node.name
        world = FlussWorld(lake_cluster, queue=any(word in name for word in QUEUE), lake="column" not in name)
        yield world
        world.close()
