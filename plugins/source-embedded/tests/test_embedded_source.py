"""The embedded source passes the suite of all sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward_source_embedded.plugin import EmbeddedSourcePlugin
from lakeward_testing.source_conformance import SourceConformance

if TYPE_CHECKING:
    from lakeward_testing.source_world import SourceWorld


class TestEmbeddedSource(SourceConformance):
    __test__ = True
    published = EmbeddedSourcePlugin
    can_lose_records = True

    @pytest.fixture
    def world(self, embedded_world: SourceWorld) -> SourceWorld:
        return embedded_world
