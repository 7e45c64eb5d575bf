"""How effects are executed: each module says it of those that are its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.coordinator.rounds.effects import Effect
    from lakeward.coordinator.rounds.round import Round


@dataclass(frozen=True, slots=True)
class Work:
    """How an effect is executed on a worker."""

    begin: Callable[[Round, Any], Callable[[], Any] | None]
    """Returns the blocking call, None where nothing is to be done any more. Called on the loop, the table held."""
    what: str
    """Names the call, for errors; the table's name follows."""
    purpose: str = ""
    """What the table is held for, for those who wait meanwhile; empty where it is not held."""
    wait_s: float | None = None
    """Seconds to wait for the table; None = no limit."""
    limit_s: float | None = None
    """Seconds for the call; None = no limit."""
    answered: bool = True
    """Whether the round waits for the result; if not, a failure is logged and left for the next sweep."""
    at_once: Callable[[Round, Any], None] | None = None
    """Called at once, in the order of the round's effects: before the round can end, for example."""
    complete: Callable[[Round, Any], Any] | None = None
    """Makes the answer of the call's result, in the moment in which the round takes it."""
    also_when_ended: bool = True
    """Whether it is executed though its round is over."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """How the effects of one module are executed: on workers, or at once."""

    works: Mapping[type[Effect], Work] = field(default_factory=dict)
    at_once: Mapping[type[Effect], Callable[[Round, Any], None]] = field(default_factory=dict)


def merged(*modules: Handlers) -> Handlers:
    """Return the handlers of all modules."""
    works = {kind: work for one in modules for kind, work in one.works.items()}
    at_once = {kind: handle for one in modules for kind, handle in one.at_once.items()}
    return Handlers(works, at_once)
