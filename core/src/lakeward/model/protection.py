"""What an acquire of a lease gave; apart from `Lease`, which names the port that gives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.tables import TableBucket


@dataclass(frozen=True, slots=True)
class Protection:
    """What an acquire gave.

    `until_s` is seconds from the moment of the answer, None where nothing runs out (or nothing is protected).
    `unavailable` lists the snapshots that are known to be gone. `protects` is False where the backend protects
    nothing (no backend, or a server without the API).
    """

    until_s: float | None
    unavailable: Mapping[TableBucket, int] = field(default_factory=dict)
    protects: bool = True
