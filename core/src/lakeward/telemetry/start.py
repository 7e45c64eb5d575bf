"""Start the export of traces and metrics if the configuration asks for it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from lakeward.errors import ConfigError

if TYPE_CHECKING:
    from lakeward.model.identity import Incarnation
    from lakeward.model.settings import ObserveSettings, Settings
    from lakeward.model.spans import RoundSpan
    from lakeward.observe.metrics import ServiceMetrics

_KEY, _ENDPOINT = "observe.telemetry", "observe.telemetry_endpoint"
_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_SCHEMES = ("http://", "https://")


class Telemetry(Protocol):
    """Exports what it is given, in the background."""

    def add_span(self, span: RoundSpan) -> None:
        """Take a span; returns at once."""
        ...

    def close(self) -> None:
        """Export what is left, and end; a collector that does not answer is not waited for."""
        ...


def check_telemetry(observe: ObserveSettings) -> None:
    """Check that telemetry can be exported if it is asked for; nothing is connected.

    Raises:
        ConfigError: the extra is not installed, or the endpoint is no URL.
    """
    if not observe.telemetry:
        return
    missing = [name for name in _NEEDED if not _is_installed(name)]
    if missing:
        expected = "OpenTelemetry to be installed (pip install 'lakeward[telemetry]')"
        raise ConfigError(_KEY, expected, f"no {', no '.join(missing)}")
    endpoint = observe.telemetry_endpoint
    if endpoint and not endpoint.startswith(_SCHEMES):
        expected = "a URL such as http://localhost:4318"
        raise ConfigError(_ENDPOINT, expected, endpoint)


def start_telemetry(settings: Settings, incarnation: Incarnation, metrics: ServiceMetrics) -> Telemetry | None:
    """Export traces and metrics from now on; None where `observe.telemetry` is off.

    Metrics of the service that are registered later are not exported.

    Raises:
        ConfigError: as `check_telemetry`.
    """
    check_telemetry(settings.observe)
    if not settings.observe.telemetry:
        return None
    # Only now: without the extra these modules cannot be imported, and without the key they are not needed.
    from lakeward.telemetry.export import export_by_otlp  # noqa: PLC0415 - see above

    return export_by_otlp(settings.observe.telemetry_endpoint, incarnation, metrics.registry)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a package that it would be in is missing
        return False
