"""The configured lease backend and its wrappers, called through pluggy, with typed hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

from lakeward.errors import LakewardError, LeaseError, OutcomeUnknownError, PluginError
from lakeward.hooks.answers import check_failover, check_nothing, check_protection, check_state
from lakeward.hooks.discovery import load, published
from lakeward.hooks.markers import PROJECT
from lakeward.hooks.plugins import LEASE_GROUP, WRAPPER_GROUP
from lakeward.hooks.spec import LeaseSpec
from lakeward.hooks.trace import HookTrace, is_wanted
from lakeward.model.leases import FailoverAction, FailoverAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from lakeward.model.leases import Failover, Lease, Protection
    from lakeward.model.tables import TableBucket

FALLBACK_DURATION_S = 600.0
"""Duration of a lease where neither the configuration nor the backend names one, in seconds."""

_REQUIRED = ("acquire", "release", "drop")
"""The other two may be left out: None means keep, and stateless."""


class LeaseBackend:
    """The configured backend: loaded by name, wrapped, its answers checked. Keeps no state of its own."""

    def __init__(
        self,
        name: str,
        backend: object,
        wrappers: Sequence[tuple[str, object]] = (),
        options: object = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """Register a backend and its wrappers.

        `name` is the configured one; it is in every error. The backend is an object, or its class: made with its
        options where it declares some, else without arguments; `options` None: their defaults. `wrappers` are names and
        wrappers, or their classes; the first one is the outermost. In `registry`, wrappers with a method
        `register_metrics` show their metrics.

        Raises:
            PluginError: one of them breaks the contract; names it.
        """
        self.name = name
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(LeaseSpec)
        made = self._backend = self._register(name, "lease backend", _with_options(backend, options))
        for wrapper_name, wrapper in reversed(wrappers):  # pluggy calls the last one registered first
            around = self._register(wrapper_name, "lease wrapper", wrapper)
            self._check_wrapper(wrapper_name, around)
            if registry is not None and hasattr(around, "register_metrics"):
                around.register_metrics(registry)
        self._check_hooks(made)
        self.default_duration_s = self._duration(made)
        if is_wanted():
            HookTrace(options).watch(self._manager)

    @classmethod
    def load(
        cls,
        name: str,
        wrappers: Sequence[str] = (),
        options: object = None,
        registry: CollectorRegistry | None = None,
    ) -> LeaseBackend:
        """Load the configured backend and wrappers, and nothing else. Arguments are as in the constructor.

        `name` is one in the entry-point group `lakeward.lease`, `wrappers` are names in `lakeward.lease_wrapper`.

        Raises:
            MissingPluginError: not installed; says which package to install.
            PluginError: claimed twice, cannot be loaded, or breaks the contract.
        """
        around = [(wrapper, load(WRAPPER_GROUP, wrapper)) for wrapper in wrappers]
        return cls(name, published(LEASE_GROUP, name), around, options, registry)

    # --- open and close ----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Let the backend open what it needs (a connection), before its first hook is called; it may have no `open`.

        Raises:
            LakewardError: as the backend raised it; `LeaseError` where it raised something of its own.
        """
        self._live("open")

    def close(self) -> None:
        """Let the backend close what it opened, after its last hook was called. Raises as `open`."""
        self._live("close")

    def _live(self, step: str) -> None:
        work = getattr(self._backend, step, None)
        if not callable(work):
            return
        try:
            work()
        except LakewardError:
            raise
        except Exception as error:
            raise LeaseError(self.name, f"{step} raised {type(error).__name__}: {error}") from error

    # --- the five hooks; see `LeaseSpec` ---------------------------------------------------------------------------

    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        """Protect snapshots or renew; see `LeaseSpec.acquire`.

        Raises:
            LeaseError: the backend failed or broke the contract.
            SourceError: the server refused.
            OutcomeUnknownError: no answer.
        """
        return check_protection(self.name, self._call("acquire", lease=lease, snapshots=snapshots), snapshots)

    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        """Release buckets; see `LeaseSpec.release`. Raises as `acquire`."""
        check_nothing(self.name, "release", self._call("release", lease=lease, buckets=buckets))

    def drop(self, lease: Lease) -> None:
        """Remove the whole lease; see `LeaseSpec.drop`. Raises as `acquire`."""
        check_nothing(self.name, "drop", self._call("drop", lease=lease))

    def on_failover(self, lease: Lease, failover: Failover) -> FailoverAnswer:
        """Decide what happens after a failure; see `LeaseSpec.on_failover`. Raises as `acquire`.

        Raises:
            CorruptFileError: the persisted bytes are not this backend's.
        """
        answer = self._call("on_failover", lease=lease, failover=failover)
        if answer is None:
            return FailoverAnswer(FailoverAction.KEEP)
        return check_failover(self.name, answer, failover)

    def serialize_state(self, lease: Lease) -> bytes | None:
        """Return the bytes to persist, None where the backend is stateless; see `LeaseSpec.serialize_state`."""
        return check_state(self.name, self._call("serialize_state", lease=lease))

    def _call(self, hook: str, **arguments: object) -> Any:  # noqa: ANN401 - checked by the caller
        try:
            return getattr(self._manager.hook, hook)(**arguments)
        except LakewardError:
            raise
        except (TimeoutError, ConnectionError) as error:
            message = f"lease backend {self.name!r}: {hook}: no answer ({type(error).__name__}: {error})"
            raise OutcomeUnknownError(message) from error
        except Exception as error:
            raise LeaseError(self.name, f"{hook} raised {type(error).__name__}: {error}") from error

    # --- loading -------------------------------------------------------------------------------------------------

    def _register(self, name: str, kind: str, plugin: object) -> object:
        try:
            made = plugin() if isinstance(plugin, type) else plugin.make() if isinstance(plugin, _Bound) else plugin
            self._manager.register(made, name=f"{kind}:{name}")
            self._manager.check_pending()
        except Exception as error:
            message = f"{kind} {name!r}: {error}"
            raise PluginError(message) from error
        return made

    def _check_wrapper(self, name: str, wrapper: object) -> None:
        for caller in self._manager.get_hookcallers(wrapper) or ():
            for impl in caller.get_hookimpls():
                if impl.plugin is wrapper and not (impl.wrapper or impl.hookwrapper):
                    message = (
                        f"lease wrapper {name!r}: expected hookimpl(wrapper=True) on {caller.name}, found a plain one"
                    )
                    raise PluginError(message)

    def _check_hooks(self, backend: object) -> None:
        offered = {caller.name for caller in self._manager.get_hookcallers(backend) or ()}
        missing = [hook for hook in _REQUIRED if hook not in offered]
        if missing:
            message = (
                f"lease backend {self.name!r}: expected the hooks {', '.join(_REQUIRED)}, missing {', '.join(missing)}"
            )
            raise PluginError(message)

    def _duration(self, backend: object) -> float:
        value = getattr(backend, "default_duration_s", FALLBACK_DURATION_S)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            message = f"lease backend {self.name!r}: default_duration_s: expected seconds > 0, found {value!r}"
            raise PluginError(message)
        return float(value)


def _with_options(backend: object, options: object) -> object:
    """Return what makes the backend: its class, bound to its options where it declares some."""
    declared = getattr(backend, "options", None)
    if not isinstance(backend, type) or not isinstance(declared, type):
        return backend
    return _Bound(backend, declared, options)


class _Bound:
    """A backend's class that is still to be made with its options."""

    def __init__(self, backend: type, declared: type, options: object) -> None:
        self._backend = backend
        self._declared = declared
        self._options = options

    def make(self) -> object:
        """Make the backend; without options, with their defaults."""
        return self._backend(self._declared() if self._options is None else self._options)
