"""All tables of rules, by the name under which the docs show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.machines import gang
from lakeward.machines.checkpoints import gateway

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.machines.machine import Rules

TABLES: Mapping[str, Rules[Any, Any]] = {rules.name: rules for rules in (gang.RULES, gateway.RULES)}
