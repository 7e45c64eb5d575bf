"""The two shipped lease wrappers: `metrics` counts and times each hook call, `audit` writes one line for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import structlog
from prometheus_client import Counter, Gauge, Summary

from lakeward.clock import SystemClock
from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import Lease, Protection

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from prometheus_client import CollectorRegistry

    from lakeward.model.leases import Failover, FailoverAnswer
    from lakeward.model.tables import TableBucket
    from lakeward.ports import Clock

_Answer = TypeVar("_Answer")

CALLS = "lakeward_lease_calls_total"
"""Labels `hook` and `outcome` (`ok`, or the error's class)."""
DURATION = "lakeward_lease_call_seconds"
"""Label `hook`."""
HELD = "lakeward_lease_held_buckets"
UNPROTECTED = "lakeward_lease_unprotected_total"
"""Acquires that were answered with `protects=False`: tables are read without protection."""
UNAVAILABLE = "lakeward_lease_unavailable_total"


_HOOKS = ("acquire", "release", "drop", "serialize_state")


@dataclass(frozen=True, slots=True)
class _Call:
    """One call: `answer` is what the backend gave, or the exception that it raised."""

    hook: str
    lease: Lease
    buckets: int
    seconds: float
    answer: object


class _Wrapper:
    """Wraps all five hooks and passes each call to `note`."""

    conformance_level = "chaos"

    def __init__(self, note: Callable[[_Call], None], clock: Clock | None) -> None:
        self._note = note
        self._clock: Clock = clock or SystemClock()

    @hookimpl(wrapper=True)
    def acquire(
        self, lease: Lease, snapshots: Mapping[TableBucket, int]
    ) -> Generator[None, Protection | None, Protection | None]:
        return (yield from self._around("acquire", lease, len(snapshots)))

    @hookimpl(wrapper=True)
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> Generator[None, object, object]:
        return (yield from self._around("release", lease, len(buckets)))

    @hookimpl(wrapper=True)
    def drop(self, lease: Lease) -> Generator[None, object, object]:
        return (yield from self._around("drop", lease, len(lease.held)))

    @hookimpl(wrapper=True)
    def on_failover(
        self, lease: Lease, failover: Failover
    ) -> Generator[None, FailoverAnswer | None, FailoverAnswer | None]:
        return (yield from self._around(f"on_failover.{failover.kind.value}", lease, len(failover.returned)))

    @hookimpl(wrapper=True)
    def serialize_state(self, lease: Lease) -> Generator[None, bytes | None, bytes | None]:
        return (yield from self._around("serialize_state", lease, len(lease.held)))

    def _around(self, hook: str, lease: Lease, buckets: int) -> Generator[None, _Answer, _Answer]:
        started = self._clock.now()
        try:
            answer = yield
        except BaseException as error:
            self._note(_Call(hook, lease, buckets, self._clock.now() - started, error))
            raise
        self._note(_Call(hook, lease, buckets, self._clock.now() - started, answer))
        return answer


class LeaseMetrics(_Wrapper):
    """Counts and times hook calls."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Start; the plugin loader gives no arguments."""
        super().__init__(self._measure, clock)
        self._calls = Counter(CALLS, "Hook calls.", ["hook", "outcome"], registry=None)
        self._seconds = Summary(DURATION, "How long hook calls took.", ["hook"], registry=None)
        self._held = Gauge(HELD, "Buckets that the lease of the last call holds.", registry=None)
        self._unprotected = Counter(UNPROTECTED, "Acquires that protect nothing.", registry=None)
        self._unavailable = Counter(UNAVAILABLE, "Snapshots that an acquire found gone.", registry=None)
        for hook in _HOOKS:  # so that a rate begins with the first call
            self._calls.labels(hook, "ok")
            self._seconds.labels(hook)

    def register_metrics(self, registry: CollectorRegistry) -> None:
        """Show the metrics in a registry."""
        for metric in (self._calls, self._seconds, self._held, self._unprotected, self._unavailable):
            registry.register(metric)

    def _measure(self, call: _Call) -> None:
        answer = call.answer
        outcome = type(answer).__name__ if isinstance(answer, BaseException) else "ok"
        self._calls.labels(call.hook, outcome).inc()
        self._seconds.labels(call.hook).observe(call.seconds)
        self._held.set(len(call.lease.held))
        if isinstance(answer, Protection):
            self._unprotected.inc(0 if answer.protects else 1)
            self._unavailable.inc(len(answer.unavailable))


class LeaseAudit(_Wrapper):
    """Writes one structured log line for each hook call."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Start; the plugin loader gives no arguments."""
        super().__init__(_write, clock)


def _write(call: _Call) -> None:
    log = structlog.get_logger("lakeward.lease.audit")
    facts: dict[str, object] = {
        "hook": call.hook,
        "lease_id": call.lease.lease_id,
        "generation": call.lease.generation,
        "buckets": call.buckets,
        "seconds": round(call.seconds, 6),
    }
    match call.answer:
        case BaseException() as error:
            log.warning("lease_call", outcome=type(error).__name__, error=str(error), **facts)
        case Protection(until_s, unavailable, protects):
            facts |= {"until_s": until_s, "unavailable": len(unavailable), "protects": protects}
            log.info("lease_call", outcome="ok", **facts)
        case _:
            log.info("lease_call", outcome="ok", **facts)
