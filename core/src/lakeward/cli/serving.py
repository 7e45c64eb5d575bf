"""Which service tiers which table, as the files of all services of the state root say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.cli.service_line import ServiceSeen, see_service, see_service_named
from lakeward.storage.binding_files import BindingFiles
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from lakeward.config.loaded import Loaded
    from lakeward.coordinator.service.bound_tables import BoundTables
    from lakeward.model.bindings import Bindings, ServiceBinding
    from lakeward.model.tables import TablePath

ANY = "any"
"""Shown for a shared table that no service has reported yet."""


@dataclass(frozen=True, slots=True)
class Server:
    """The service that tiers a table, `ANY` where nobody has reported it. `bound`: no other service may."""

    name: str
    bound: bool
    seen: ServiceSeen


@dataclass(frozen=True, slots=True)
class Services:
    """All services of a state root. `ours` is the one that the configuration names."""

    ours: ServiceSeen
    others: tuple[ServiceSeen, ...]
    bindings: Bindings

    @property
    def several(self) -> bool:
        """Whether there is more to tell than what our own service does."""
        return bool(self.others) or any(one.patterns or not one.shared for one in self.bindings.services)

    def of(self, path: TablePath) -> Server:
        """Return who tiers a table: the service that it is bound to, else the one that reported it last."""
        if bound := self.bindings.bound_to(path):
            known = {one.name: one for one in (self.ours, *self.others)}
            return Server(bound, True, known.get(bound) or ServiceSeen(bound, False, "has never run here", None))
        sharing = [one for one in (self.ours, *self.others) if self.bindings.of(one.name).shared]
        # Of several that know equally much the first one counts: ours.
        best = max(sharing, key=lambda one: (one.running, _latest_ms(one, path)), default=self.ours)
        return Server(best.name if _latest_ms(best, path) >= 0 else ANY, False, best)

    def may_serve(self, path: TablePath) -> tuple[str, ...]:
        """Return the names of the services that may tier a table, ours first."""
        if bound := self.bindings.bound_to(path):
            return (bound,)
        return tuple(one.name for one in (self.ours, *self.others) if self.bindings.of(one.name).shared)


def find_services(loaded: Loaded) -> Services:
    """Read what all services of the state root bind and report.

    Args:
        loaded: the configuration.

    Raises:
        CorruptFileError: a file of a service is damaged.
        StorageError: the state root cannot be read.
    """
    address, ours = loaded.settings.checkpoint.address, see_service(loaded)
    files = BindingFiles(SmallFiles(address))
    others = (see_service_named(address, name) for name in files.services() if name != ours.name)
    return Services(ours, tuple(one for one in others if one.report is not None), files.read())


def describe_bindings(bound: BoundTables) -> str:
    """Say which service tiers which tables, as this service's start would find it.

    Args:
        bound: of the service that is configured; it does not bind anything yet.

    Raises:
        ConfigError: another service has bound the same pattern.
        CorruptFileError: a file of a service is damaged.
        StorageError: the state root cannot be read.
    """
    ours, *others = bound.look().services
    what = [f"this service binds {_listed(ours)}" if ours.patterns else "this service binds none"]
    what += [f"service {one.service!r} binds {_listed(one)}" for one in others if one.patterns]
    rest = "tiers the others too" if ours.shared else "leaves the others alone"
    return f"{'; '.join(what)}; this service {rest}" if len(what) > 1 or ours.patterns else "all are shared"


def _listed(binding: ServiceBinding) -> str:
    return ", ".join(sorted(binding.patterns))


def _latest_ms(seen: ServiceSeen, path: TablePath) -> int:
    """Return when a service last did something with a table, 0 where it only reported it, -1 where it did not."""
    reports = () if seen.report is None else seen.report.tables
    found = (one for one in reports if one.path == str(path))
    return max((max(one.committed_ms or 0, one.round.started_ms if one.round else 0) for one in found), default=-1)
