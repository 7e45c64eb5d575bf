"""All tables of rules, by the name under which the docs show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.machines import exchange, gang, link, recovery, splits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.machines.machine import Rules

_RULES: tuple[Rules[Any, Any], ...] = (
    exchange.ALIGNMENT,
    exchange.OUTPUT,
    gang.RULES,
    link.RULES,
    recovery.RULES,
    splits.SPLITS,
    splits.ATTEMPTS,
    splits.CONNECTIONS,
    splits.ROUND,
)
TABLES: Mapping[str, Rules[Any, Any]] = {rules.name: rules for rules in _RULES}
