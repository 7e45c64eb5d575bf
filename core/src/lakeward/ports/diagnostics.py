"""The port of a source that can say what it is able to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that `lakeward doctor` says of a source: what, whether it is well, and a message."""

    what: str
    ok: bool
    message: str


@runtime_checkable
class DescribedSource(Protocol):
    """A source that can say what it is and what it can do; one that cannot is only opened by the doctor."""

    def describe(self) -> Sequence[CheckResult]:
        """Return what is there, without secrets. Raises as `Source.tables`."""
        ...
