"""What observes a running service from a package of its own: the status page, and telemetry.

Such a package publishes a function under the entry-point group `lakeward.observer`: it takes an `ObservedService` and
returns an `OpenObserver`. The service looks for the name `page` where `observe.status_port` is set, and for `telemetry`
where `observe.telemetry` is on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lakeward.errors import ConfigError
from lakeward.hooks.discovery import installed_as, load
from lakeward.hooks.plugins import OBSERVER_GROUP

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from lakeward.model.settings import ObserveSettings, Settings
    from lakeward.model.spans import RoundSpan
    from lakeward.observe.live_status import LiveStatus
    from lakeward.ports import Clock, Executor


@dataclass(frozen=True, slots=True)
class ObservedService:
    """What an observer may show or send.

    `live` is what the process knows of the service, `registry` has its metrics. `secrets` are never shown.
    `incarnation` is empty as long as source and lake are not open.
    """

    settings: Settings
    live: LiveStatus
    registry: CollectorRegistry
    clock: Clock
    executor: Executor
    secrets: frozenset[str]
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class OpenObserver:
    """An observer that is open.

    `url` is where a person can look at it, empty where nobody can. `on_span` takes each span of a round, and returns at
    once; None where spans are not wanted.
    """

    close: Callable[[], None]
    url: str = ""
    on_span: Callable[[RoundSpan], None] | None = None


Observer = Callable[[ObservedService], OpenObserver]
"""What a package publishes. It raises `ConfigError` where a key of its own cannot be used."""


def find_observers(observe: ObserveSettings) -> dict[str, Observer]:
    """Import the observers that a configuration asks for; nothing is opened.

    Raises:
        ConfigError: one is not installed; names the key, and what to install.
    """
    wanted = {}
    if observe.status_port is not None:
        wanted["page"] = _find("page", "observe.status_port", "the status page")
    if observe.telemetry:
        wanted["telemetry"] = _find("telemetry", "observe.telemetry", "OpenTelemetry")
    return wanted


def _find(name: str, key: str, what: str) -> Observer:
    if not installed_as(OBSERVER_GROUP, name):
        raise ConfigError(key, f"{what} to be installed (pip install 'lakeward[{name}]')", f"no lakeward-{name}")
    return cast("Observer", load(OBSERVER_GROUP, name))
