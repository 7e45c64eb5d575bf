"""Which service tiers which table, as the files of all services of the state root say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.cli.service_line import see_service
from lakeward.observe.services import Services, services_beside

if TYPE_CHECKING:
    from lakeward.config.loaded import Loaded
    from lakeward.coordinator.service.bound_tables import BoundTables
    from lakeward.model.bindings import ServiceBinding


def find_services(loaded: Loaded) -> Services:
    """Read what all services of the state root bind and report.

    Raises:
        CorruptFileError: a file of a service is damaged.
        StorageError: the state root cannot be read.
    """
    return services_beside(loaded.settings.checkpoint.address, see_service(loaded))


def describe_bindings(bound: BoundTables) -> str:
    """Say which service tiers which tables, as this service's start would find it.

    `bound` is of the service that is configured; it does not bind anything yet.

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
