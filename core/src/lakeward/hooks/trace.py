"""Log each call of a lease hook: its arguments, its result and how long it took (`LAKEWARD_TRACE_HOOKS=1`).

The lines have the level `debug` and a logger of their own, which the variable opens: the rest of the log stays as
`observe.level` says. Neither the server object nor persisted bytes are shown, and secrets are masked.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import structlog

from lakeward.clock import SystemClock
from lakeward.model.leases import Failover, FailoverAnswer, Lease, RestoredLease
from lakeward.model.options import Options, secrets_of
from lakeward.model.protection import Protection
from lakeward.model.secrets import SecretTexts, mask_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pluggy

    from lakeward.ports import Clock

TRACE_VARIABLE = "LAKEWARD_TRACE_HOOKS"
LOGGER = "lakeward.lease.trace"


def is_wanted() -> bool:
    """Return whether the environment asks for a trace."""
    return os.environ.get(TRACE_VARIABLE, "").strip().lower() not in {"", "0", "false", "no", "off"}


class HookTrace:
    """What pluggy calls before and after each hook; calls of different leases may overlap, each on its thread."""

    def __init__(self, options: object = None, clock: Clock | None = None) -> None:
        """Open the logger of the trace; secret values of the backend's options are masked wherever they occur."""
        self._secrets = SecretTexts(secrets_of(options) if isinstance(options, Options) else ())
        self._clock: Clock = clock or SystemClock()
        self._started = threading.local()
        logging.getLogger(LOGGER).setLevel(logging.DEBUG)

    def watch(self, manager: pluggy.PluginManager) -> None:
        """Log every hook call of a manager from now on."""
        manager.add_hookcall_monitoring(self._before, self._after)

    def _before(self, hook: str, _impls: Sequence[Any], arguments: Mapping[str, Any]) -> None:
        shown = ", ".join(f"{name}={_brief(value)}" for name, value in arguments.items())
        self._write(f"lease hook {hook}({shown})")
        self._started.at = self._clock.now()

    def _after(
        self, outcome: pluggy.Result[Any], hook: str, _impls: Sequence[Any], _arguments: Mapping[str, Any]
    ) -> None:
        seconds = round(self._clock.now() - self._started.at, 6)
        error = outcome.exception
        result = f"-> {_brief(outcome.get_result())}" if error is None else f"raised {type(error).__name__}: {error}"
        self._write(f"lease hook {hook} {result}", seconds=seconds)

    def _write(self, text: str, **facts: object) -> None:
        structlog.get_logger(LOGGER).debug(mask_text(self._secrets.hide(text)), **facts)


def _brief(value: object) -> str:
    """Show a value without the server object, without persisted bytes, and without thousands of buckets."""
    match value:
        case Lease() | RestoredLease():
            return f"{value.lease_id} holding {len(value.held)}"
        case Failover():
            state = _brief(value.state)
            return f"{value.kind.value} attempt {value.attempt}, {len(value.returned)} splits back, state {state}"
        case FailoverAnswer():
            return value.action.value if value.restored is None else f"{value.action.value} {_brief(value.restored)}"
        case Protection():
            protects = "" if value.protects else ", protects nothing"
            return f"Protection(until_s={value.until_s}, {len(value.unavailable)} unavailable{protects})"
        case bytes() | Mapping() | AbstractSet():
            return f"{len(value)} {'bytes' if isinstance(value, bytes) else 'buckets'}"
        case _:
            return repr(value)
