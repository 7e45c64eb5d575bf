"""A status page without a service, see `lakeward_service_kit.page_reports`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.observe.live_status import LiveStatus
from lakeward.testing.clock import FakeClock
from lakeward_service_kit.page_reports import Page

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def page() -> Iterator[Page]:
    clock = FakeClock(wall_ms=10_000)
    shown = Page(clock, LiveStatus(clock))
    yield shown
    shown.problems.close()
