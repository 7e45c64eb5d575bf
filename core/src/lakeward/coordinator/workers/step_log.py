"""Debug logs of the machines' steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.machines.driver import Step


def step_log(logger: str, machine: str) -> Callable[[Step[Any, Any]], None]:
    """Return what logs each step of a machine.

    The logger is bound here, once: to bind it at each step takes longer than many a step.
    """
    debug = structlog.get_logger(logger).bind().debug
    stepped = f"{machine} stepped"

    def log(step: Step[Any, Any]) -> None:
        debug(stepped, event_taken=step.event, commands=step.commands)

    return log
