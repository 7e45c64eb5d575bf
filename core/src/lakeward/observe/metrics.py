"""A small in-process metrics registry with a Prometheus text rendering."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


class Metrics:
    """Counters, gauges and timings by name and labels. Safe to use from several threads.

    A timing is two counters, `<name>_seconds_sum` and `<name>_seconds_count`: rates and means follow, buckets do not
    have to be chosen. A name has one kind for ever.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self._lock = threading.Lock()
        self._kinds: dict[str, str] = {}
        self._values: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter.

        Args:
            name: such as `lakeward_lease_calls_total`.
            amount: >= 0.
            labels: label to value.
        """
        self._add(name, "counter", amount, labels)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge.

        Args:
            name: the gauge's name.
            value: its value now.
            labels: label to value.
        """
        with self._lock:
            self._series(name, "gauge")[_key(labels)] = value

    def reach(self, name: str, total: float, **labels: str) -> None:
        """Let a counter reach a total that is counted elsewhere; it never goes back.

        Args:
            name: the counter's name.
            total: >= 0; a smaller one than before changes nothing.
            labels: label to value.
        """
        with self._lock:
            series = self._series(name, "counter")
            key = _key(labels)
            series[key] = max(series.get(key, 0.0), total)

    def keep(self, label: str, values: Collection[str], *names: str) -> None:
        """Drop the series of what is no more.

        Args:
            label: such as `table`.
            values: what there still is.
            *names: the gauges whose other series go.
        """
        with self._lock:
            for name in names:
                series = self._values.get(name, {})
                for key in [key for key in series if dict(key).get(label) not in values]:
                    del series[key]

    def time(self, name: str, seconds: float, **labels: str) -> None:
        """Add one duration to a timing.

        Args:
            name: the timing's name, without a unit.
            seconds: how long it took.
            labels: label to value.
        """
        self._add(f"{name}_seconds_sum", "counter", seconds, labels)
        self._add(f"{name}_seconds_count", "counter", 1, labels)

    def value(self, name: str, **labels: str) -> float:
        """Return a series' value now, 0 where it was never touched."""
        with self._lock:
            return self._values.get(name, {}).get(_key(labels), 0.0)

    def render(self) -> str:
        """Return everything in the Prometheus text format, version 0.0.4."""
        with self._lock:
            lines = []
            for name in sorted(self._values):
                lines.append(f"# TYPE {name} {self._kinds[name]}")
                lines += [f"{name}{_text(key)} {value:.17g}" for key, value in sorted(self._values[name].items())]
        return "".join(f"{line}\n" for line in lines)

    def _add(self, name: str, kind: str, amount: float, labels: dict[str, str]) -> None:
        with self._lock:
            series = self._series(name, kind)
            key = _key(labels)
            series[key] = series.get(key, 0.0) + amount

    def _series(self, name: str, kind: str) -> dict[tuple[tuple[str, str], ...], float]:
        if self._kinds.setdefault(name, kind) != kind:
            message = f"metric {name}: is a {self._kinds[name]}, not a {kind}"
            raise ValueError(message)
        return self._values.setdefault(name, {})


@cache
def process_metrics() -> Metrics:
    """Return the registry of this process.

    One for the process, because lease wrappers are made by the plugin loader, without arguments, and their figures
    have to meet those of the service on one page.
    """
    return Metrics()


def _key(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def _text(key: tuple[tuple[str, str], ...]) -> str:
    if not key:
        return ""
    return "{" + ",".join(f'{label}="{_escaped(value)}"' for label, value in key) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
