from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.embedded.store import EmbeddedStore
from lakeward.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[EmbeddedStore]:
    with EmbeddedStore.create(tmp_path / "store", clock=clock) as store:
        yield store
