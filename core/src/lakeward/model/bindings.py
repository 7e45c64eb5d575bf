"""Which tables are bound to one of several services of a source; the others are shared by all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.model.patterns import matches, specificity

if TYPE_CHECKING:
    from lakeward.model.tables import TablePath


@dataclass(frozen=True, slots=True)
class ServiceBinding:
    """What one service binds.

    `patterns` maps a pattern of table names to when the service bound it, in milliseconds since 1970. `shared` says
    whether the service also tiers tables that no service binds.
    """

    service: str
    patterns: Mapping[str, int] = field(default_factory=dict)
    shared: bool = True


@dataclass(frozen=True, slots=True)
class Bindings:
    """What all services of a state root bind."""

    services: tuple[ServiceBinding, ...] = ()

    def bound_to(self, path: TablePath) -> str:
        """Return the name of the service that alone tiers a table, empty where any service may.

        The most specific pattern wins; of two that are equally specific, the one that was bound first.
        """
        found = [
            (*specificity(pattern), -since_ms, one.service)
            for one in self.services
            for pattern, since_ms in one.patterns.items()
            if matches(pattern, path)
        ]
        return max(found)[-1] if found else ""

    def serves(self, service: str, path: TablePath) -> bool:
        """Return whether a service may tier a table."""
        bound = self.bound_to(path)
        return bound == service if bound else self.of(service).shared

    def of(self, service: str) -> ServiceBinding:
        """Return what a service binds; a service that has said nothing shares all tables that nobody binds."""
        return next((one for one in self.services if one.service == service), ServiceBinding(service))
