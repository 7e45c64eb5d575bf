"""The metrics of a Prometheus registry as instruments of OpenTelemetry, which read it whenever they are exported."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from opentelemetry.metrics import CallbackOptions, Observation

from lakeward.observe.extend import exported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import Meter
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

_SUMS = frozenset({"_total", "_count", "_sum"})
"""Ends of the names of samples that only grow."""
_UNITS = (("_seconds", "s"), ("_bytes", "By"), ("_ratio", "1"))
_LEFT_OUT = "_created"


def observe_registry(meter: Meter, registry: CollectorRegistry) -> None:
    """Make an instrument for each metric that the registry has or a service can have; each reads the registry.

    A counter is named as in Prometheus without `_total`; a summary is two counters, `..._count` and `..._sum`.
    """
    values = _Values(registry)
    known = {metric.name: metric for metric in [*exported(), *registry.collect()]}
    for metric in known.values():
        if metric.type in {"summary", "histogram"}:
            for end in ("_count", "_sum"):
                _observe(meter, metric, f"{metric.name}{end}", values)
        else:
            _observe(meter, metric, f"{metric.name}_total" if metric.type == "counter" else metric.name, values)


def _observe(meter: Meter, metric: Metric, sample: str, values: _Values) -> None:
    grows = any(sample.endswith(end) for end in _SUMS) and metric.type != "gauge"
    make = meter.create_observable_counter if grows else meter.create_observable_gauge
    unit = next((unit for end, unit in _UNITS if metric.name.endswith(end) and not sample.endswith("_count")), "")
    make(sample.removesuffix("_total"), [values.reader(sample)], unit=unit, description=metric.documentation)


class _Values:
    """The registry's samples; it is read once for all instruments of an export."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._samples: dict[str, list[Observation]] = {}
        self._given: set[str] | None = None
        """Names that were asked for since the registry was read; None before the first time."""

    def reader(self, sample: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            with self._lock:
                if self._given is None or sample in self._given:
                    self._read()
                    self._given = set()
                self._given.add(sample)
                return self._samples.get(sample, [])

        return read

    def _read(self) -> None:
        self._samples = {}
        for metric in self._registry.collect():
            for one in metric.samples:
                if not one.name.endswith(_LEFT_OUT):
                    self._samples.setdefault(one.name, []).append(Observation(one.value, dict(one.labels)))
