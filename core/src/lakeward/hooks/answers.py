"""Checks of a lease backend's answers; an error names the backend."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from lakeward.errors import LeaseError
from lakeward.model.leases import Failover, FailoverAction, FailoverAnswer, FailoverKind, Protection, RestoredLease
from lakeward.model.tables import TableBucket

if TYPE_CHECKING:
    from typing import Any


def check_protection(backend: str, answer: Any, asked: Mapping[TableBucket, int]) -> Protection:  # noqa: ANN401 - a plugin's answer
    """Check what `acquire` of the configured backend answered, and return it; `asked` maps bucket to snapshot id.

    Raises:
        LeaseError: it is no `Protection`, or names snapshots that were not asked for.
    """
    if not isinstance(answer, Protection):
        _refuse(backend, "acquire", "a Protection", answer)
    until = answer.until_s
    if until is not None and (not _is_number(until) or not math.isfinite(until) or until <= 0):
        _refuse(backend, "acquire", "until_s to be seconds > 0 or None", until)
    if not isinstance(answer.protects, bool):
        _refuse(backend, "acquire", "protects to be a bool", answer.protects)
    if not isinstance(answer.unavailable, Mapping):
        _refuse(backend, "acquire", "unavailable to be a mapping", answer.unavailable)
    strange = {bucket: i for bucket, i in answer.unavailable.items() if asked.get(bucket) != i}
    if strange:
        _refuse(backend, "acquire", "unavailable snapshots to be among those asked for", strange)
    return answer


def check_nothing(backend: str, hook: str, answer: object) -> None:
    """Check that a hook without a result returned None.

    Raises:
        LeaseError: it returned something.
    """
    if answer is not None:
        _refuse(backend, hook, "None", answer)


def check_failover(backend: str, answer: Any, failover: Failover) -> FailoverAnswer:  # noqa: ANN401 - a plugin's answer
    """Check what `on_failover` answered.

    Raises:
        LeaseError: it is no `FailoverAnswer`, or restores a lease although no coordinator failed.
    """
    if not isinstance(answer, FailoverAnswer) or not isinstance(answer.action, FailoverAction):
        _refuse(backend, "on_failover", "a FailoverAnswer", answer)
    if answer.restored is None:
        return answer
    if failover.kind is not FailoverKind.COORDINATOR:
        _refuse(backend, "on_failover", f"nothing restored after {failover.kind.value}", answer.restored)
    _check_restored(backend, answer.restored)
    return answer


def check_state(backend: str, answer: Any) -> bytes | None:  # noqa: ANN401 - a plugin's answer
    """Check what `serialize_state` answered.

    Raises:
        LeaseError: neither bytes nor None.
    """
    if answer is not None and not isinstance(answer, bytes):
        _refuse(backend, "serialize_state", "bytes or None", answer)
    return answer


def _check_restored(backend: str, restored: Any) -> None:  # noqa: ANN401 - a plugin's answer
    lease_id: object = getattr(restored, "lease_id", None)
    if not isinstance(restored, RestoredLease) or not (isinstance(lease_id, str) and lease_id):
        _refuse(backend, "on_failover", "a RestoredLease with an id", restored)
    held: object = restored.held
    if not isinstance(held, Mapping) or not all(
        _is_leased_bucket(bucket, snapshot) for bucket, snapshot in held.items()
    ):
        _refuse(backend, "on_failover", "held to map buckets to snapshot ids", held)


def _is_leased_bucket(bucket: object, snapshot_id: object) -> bool:
    return isinstance(bucket, TableBucket) and isinstance(snapshot_id, int)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse(backend: str, hook: str, expected: str, found: object) -> NoReturn:
    raise LeaseError(backend, f"{hook}: expected {expected}, found {found!r}")
