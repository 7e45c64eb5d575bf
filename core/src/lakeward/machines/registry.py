"""All tables of rules, by the name under which the docs show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.machines import checkpoints, gang, leases, rounds
from lakeward.machines.checkpoints import gateway

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.machines.machine import Rules

_RULES: tuple[Rules[Any, Any], ...] = (
    gang.RULES,
    gateway.RULES,
    checkpoints.RULES,
    checkpoints.ATTEMPT_RULES,
    leases.RULES,
    leases.BUCKET_RULES,
    rounds.RULES,
    rounds.HEARTBEAT_RULES,
    rounds.TABLE_RULES,
)
TABLES: Mapping[str, Rules[Any, Any]] = {rules.name: rules for rules in _RULES}
