"""What packages need that observe a running service: their contract, and the words in which Lakeward says what it sees.

See `lakeward.observe.observers` for how such a package is published.
"""

from __future__ import annotations

from lakeward.errors import meaning_of
from lakeward.observe import condition
from lakeward.observe.format import ago, catalog_away, clock_time, count, date_time, rate, seconds, size
from lakeward.observe.live_status import LiveStatus
from lakeward.observe.metrics_reference import exported
from lakeward.observe.observers import ObservedService, OpenObserver
from lakeward.observe.progress import format_counts, format_exchange, format_replay, format_upkeep
from lakeward.observe.round_facts import PHASES, SEQUENTIAL, phases_of, round_facts, why
from lakeward.observe.services import Services, ServiceSeen, services_beside
from lakeward.sockets.addresses import is_loopback

__all__ = [
    "PHASES",
    "SEQUENTIAL",
    "LiveStatus",
    "ObservedService",
    "OpenObserver",
    "ServiceSeen",
    "Services",
    "ago",
    "catalog_away",
    "clock_time",
    "condition",
    "count",
    "date_time",
    "exported",
    "format_counts",
    "format_exchange",
    "format_replay",
    "format_upkeep",
    "is_loopback",
    "meaning_of",
    "phases_of",
    "rate",
    "round_facts",
    "seconds",
    "services_beside",
    "size",
    "why",
]
