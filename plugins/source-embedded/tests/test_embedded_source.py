"""The embedded source passes the suite of all sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.testing.source_conformance import SourceConformance
from lakeward_source_embedded.plugin import EmbeddedSourcePlugin

if TYPE_CHECKING:
    from lakeward.testing.source_world import SourceWorld


class TestEmbeddedSource(SourceConformance):
    __test__ = True
    published = EmbeddedSourcePlugin
    can_lose_records = True

    @pytest.fixture
    def world(self, embedded_world: SourceWorld) -> SourceWorld:
        return embedded_world
