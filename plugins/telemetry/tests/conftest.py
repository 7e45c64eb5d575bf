"""A collector on this machine, and an environment that names none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "core" / "kit"))

from lakeward_service_kit.collector import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector that takes what comes."""
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing of this machine's OpenTelemetry in."""
    for name in ("ENDPOINT", "HEADERS", "TRACES_ENDPOINT", "METRICS_ENDPOINT"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"):
        monkeypatch.delenv(name, raising=False)
