"""A status page without a service, see `lakeward_page_kit.page`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeward.observe.live_status import LiveStatus
from lakeward_testing.clock import FakeClock

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "core" / "kit"))
sys.path.insert(0, str(Path(__file__).with_name("kit")))

from lakeward_page_kit.page import Page

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    clock = FakeClock(wall_ms=10_000)
    shown = Page(clock, LiveStatus(clock), str(tmp_path))
    yield shown
    shown.problems.close()
