"""Which tables this service may tier, where several services share one source.

A service binds tables by `service.tables`. It says so in a file beside its state, and reads the files of the other
services of the state root again and again: no service needs another one to run.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from lakeward.errors import ConfigError, LakewardError
from lakeward.model.bindings import Bindings, ServiceBinding
from lakeward.repeated_failure import RepeatedFailure

if TYPE_CHECKING:
    from lakeward.model.settings import ServiceSettings, TableSettings
    from lakeward.model.tables import TablePath
    from lakeward.ports import Clock, Executor
    from lakeward.storage.binding_files import BindingFiles

REFRESH_S = 5.0
"""Seconds between two looks at what other services bind."""
LOOK = "read what other services bind"
"""Name of the thread that does so."""
_log = structlog.get_logger("lakeward.bindings")


class BoundTables:
    """Answers whether this service may tier a table. Thread-safe; only `bind` and `look` block."""

    def __init__(
        self, files: BindingFiles, settings: ServiceSettings, clock: Clock, executor: Executor, where: str
    ) -> None:
        """Know nothing of other services yet; `where`, for errors, is the place of `service.tables`."""
        self._files = files
        self._settings = settings
        self._clock = clock
        self._executor = executor
        self._where = where
        self._bindings = Bindings((ServiceBinding(settings.name, dict.fromkeys(settings.tables, 0), settings.shared),))
        self._refresh_at = float("-inf")
        self._looking = False
        self._trouble = RepeatedFailure(
            _log.warning,
            "the bindings of other services cannot be read; the last ones hold",
            "the bindings of other services can be read again",
        )
        self._logged: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def bind(self) -> None:
        """Bind the tables of the configuration, and learn what the other services bind. Blocking.

        Raises:
            ConfigError: another service has bound the same pattern; nothing of ours has changed then.
            CorruptFileError: the bindings of a service cannot be understood.
            StorageError: the disk or store refused.
        """
        known = self._files.read()
        before, ours = known.of(self._settings.name), self._ours(known)
        self._refuse_equal(known, ours)
        if ours != before:
            self._files.write(ours)
            known = self._files.read()  # another service may have started at the same moment
            try:
                self._refuse_equal(known, ours)
            except ConfigError:
                self._files.write(before)
                raise
        self._note(known)

    def look(self) -> Bindings:
        """Return what all services would bind once this one has started; nothing is written. Blocking.

        Raises:
            ConfigError: another service has bound the same pattern.
            CorruptFileError: the bindings of a service cannot be understood.
            StorageError: the disk or store refused.
        """
        known = self._files.read()
        ours = self._ours(known)
        self._refuse_equal(known, ours)
        return Bindings((ours, *(one for one in known.services if one.service != ours.service)))

    def refresh(self) -> None:
        """Have what the other services bind read again, if the last look is some seconds ago; returns at once.

        A store that hangs keeps no heartbeat waiting. Until it answers, and where it fails, what was read last holds.
        """
        with self._lock:
            if self._looking or self._clock.now() < self._refresh_at:
                return
            self._looking, self._refresh_at = True, self._clock.now() + REFRESH_S
        self._executor.start(self._look, name=LOOK)

    def _look(self) -> None:
        try:
            self._note(self._files.read())
        except LakewardError as error:
            self._trouble.failed(str(error))
        else:
            self._trouble.succeeded()
        finally:
            with self._lock:
                self._looking = False

    def rules(self, path: TablePath, rules: TableSettings) -> TableSettings:
        """Return the rules of a table for this service: one that another service tiers is not included."""
        served = self._bindings.serves(self._settings.name, path)
        return rules if served else replace(rules, include=False)

    def _ours(self, known: Bindings) -> ServiceBinding:
        before, now_ms = known.of(self._settings.name), self._clock.wall_ms()
        patterns = {one: before.patterns.get(one, now_ms) for one in self._settings.tables}
        return ServiceBinding(self._settings.name, patterns, self._settings.shared)

    def _note(self, found: Bindings) -> None:
        bound = {one.service: sorted(one.patterns) for one in found.services if one.patterns}
        if bound != self._logged:
            _log.info("tables are bound to services", services=bound)
        self._bindings, self._logged = found, bound

    def _refuse_equal(self, known: Bindings, ours: ServiceBinding) -> None:
        for other in known.services:
            if other.service == ours.service:
                continue
            for pattern, since_ms in other.patterns.items():
                if pattern in ours.patterns:
                    since = datetime.fromtimestamp(since_ms / 1000, UTC).isoformat(timespec="seconds")
                    expected = f"patterns that no other service of {self._files.root} binds"
                    found = f"{pattern}, which service {other.service!r} has bound since {since}"
                    hint = (
                        "Take the pattern out of one of both, or name the tables more precisely. "
                        f"If that service is gone for good: `lakeward tables unbind {other.service}`."
                    )
                    raise ConfigError(self._where, expected, found, hint)
