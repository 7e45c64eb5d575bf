from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.testing.clock import FakeClock
from lakeward.testing.command_line import configured, flights, lakeward
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["configured", "flights", "lakeward"]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[EmbeddedStore]:
    with EmbeddedStore.create(tmp_path / "store", clock=clock) as store:
        yield store
