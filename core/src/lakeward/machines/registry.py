"""All tables of rules, by the name under which the docs show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.machines import checkpoints, exchange, gang, launches, leases, link, recovery, rounds, splits
from lakeward.machines.checkpoints import gateway

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.machines.machine import Rules

_RULES: tuple[Rules[Any, Any], ...] = (
    checkpoints.RULES,
    checkpoints.ATTEMPT_RULES,
    exchange.ALIGNMENT,
    exchange.OUTPUT,
    gang.RULES,
    gateway.RULES,
    launches.RULES,
    leases.RULES,
    leases.BUCKET_RULES,
    link.RULES,
    recovery.RULES,
    rounds.RULES,
    rounds.HEARTBEAT_RULES,
    rounds.TABLE_RULES,
    splits.SPLITS,
    splits.ATTEMPTS,
    splits.CONNECTIONS,
    splits.ROUND,
)
TABLES: Mapping[str, Rules[Any, Any]] = {rules.name: rules for rules in _RULES}
