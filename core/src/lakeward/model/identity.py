"""Who writes: incarnations and rounds. Their text forms are on-disk formats."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from lakeward.errors import UsageError

SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._]{0,63}")
"""No `-`, which joins the parts of an incarnation, and no `/`: it becomes a path part and a lease id."""


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One start of a service: the fence of everything it writes. Text: `service-startedms-nonce`."""

    service: str
    started_ms: int
    nonce: str

    @classmethod
    def parse(cls, text: str) -> Incarnation:
        """Read the text form: `service-<milliseconds since 1970>-<16 hex digits>`.

        Raises:
            UsageError: not of that form.
        """
        return _parse_incarnation(text)

    def succeeds(self, other: Incarnation) -> bool:
        """True if this is a later start of the same service."""
        return self.service == other.service and (self.started_ms, self.nonce) > (other.started_ms, other.nonce)

    def __str__(self) -> str:
        """Join the parts by `-`."""
        return f"{self.service}-{self.started_ms}-{self.nonce}"


@lru_cache(maxsize=256)
def _parse_incarnation(text: str) -> Incarnation:
    """Keep what was read: every listing of a service's files holds the same few names."""
    service, _, rest = text.partition("-")
    started, _, nonce = rest.partition("-")
    if not (SERVICE_NAME.fullmatch(service) and started.isdigit() and re.fullmatch(r"[0-9a-f]{16}", nonce)):
        message = f"incarnation: expected SERVICE-MILLISECONDS-16HEX, found {text!r}"
        raise UsageError(message)
    return Incarnation(service, int(started), nonce)


UPKEEP = -1
"""The epoch of a job of upkeep, which the source has not asked for; no round has it."""
REPLAY = -2
"""The epoch of a replay of dead letters, with the number of the round that it comes before; no round has it."""
_NAMES = {UPKEEP: "upkeep", REPLAY: "replay"}


@dataclass(frozen=True, slots=True)
class RoundId:
    """One pass over one table. Text: `<incarnation>/<table id>-<epoch>-<number>`; `number` grows with every try.

    A job of upkeep has such an id too, with the epoch `UPKEEP` and numbers of its own, and so has a replay.
    """

    incarnation: Incarnation
    table_id: int
    epoch: int
    number: int

    @property
    def name(self) -> str:
        """The part after the incarnation."""
        return f"{self.table_id}-{_NAMES.get(self.epoch, self.epoch)}-{self.number}"

    @property
    def is_upkeep(self) -> bool:
        """True for a job of upkeep."""
        return self.epoch == UPKEEP

    def __str__(self) -> str:
        """Incarnation and name joined by `/`."""
        return f"{self.incarnation}/{self.name}"
