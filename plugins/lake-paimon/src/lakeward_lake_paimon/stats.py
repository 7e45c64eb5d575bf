"""What a manifest says of some columns: their least and greatest values and how many nulls they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward_lake_paimon.binary_row import EMPTY_ROW

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Stats:
    """The least and greatest values of some columns, as rows, and how many nulls each has; None: unknown."""

    least: bytes = EMPTY_ROW
    greatest: bytes = EMPTY_ROW
    nulls: tuple[int | None, ...] = ()

    @property
    def memory_bytes(self) -> int:
        """About what it takes of memory."""
        return len(self.least) + len(self.greatest) + 40 * len(self.nulls)

    def to_avro(self) -> dict[str, Any]:
        """Return the record."""
        return {"_MIN_VALUES": self.least, "_MAX_VALUES": self.greatest, "_NULL_COUNTS": list(self.nulls)}

    @classmethod
    def from_avro(cls, record: Mapping[str, Any]) -> Stats:
        """Read the record."""
        return cls(record["_MIN_VALUES"], record["_MAX_VALUES"], tuple(record["_NULL_COUNTS"] or ()))
