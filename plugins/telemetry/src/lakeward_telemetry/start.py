"""Start the export of traces and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.observe.extend import OpenObserver
from lakeward_telemetry.export import export_by_otlp

if TYPE_CHECKING:
    from lakeward.observe.extend import ObservedService


def open_telemetry(service: ObservedService) -> OpenObserver:
    """Export spans and metrics from now on; metrics that are registered later are not exported."""
    settings = service.settings
    exporting = export_by_otlp(
        settings.observe.telemetry_endpoint, settings.service.name, service.incarnation, service.registry
    )
    return OpenObserver(exporting.close, on_span=exporting.add_span)
