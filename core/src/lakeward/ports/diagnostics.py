"""The ports of a source and a lake that can be examined by `lakeward doctor`. A plugin that has none is only opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.tables import TablePath, TableSpec

CLOCK_SKEW_MS = 5_000
"""Two clocks that differ by more are a problem: stores keep times in whole seconds, and answers take their time."""
_MS = 1000


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that `lakeward doctor` says: what, whether it is well, a message, and what to do if anything.

    A `warning` is no problem: what is meant may be so.
    """

    what: str
    ok: bool
    message: str
    action: str = ""
    warning: bool = False


@dataclass(frozen=True, slots=True)
class ServerLake:
    """The lake that a source's server has for some tables: its format, and the settings of its catalog.

    Settings may be secrets: only the lake's plugin looks at them, and shows none that it does not know.
    """

    tables: tuple[TablePath, ...]
    lake_format: str
    settings: Mapping[str, str]


@runtime_checkable
class DescribedSource(Protocol):
    """A source that can say what it is and what it can do."""

    def describe(self) -> Sequence[CheckResult]:
        """Return what is there, without secrets. Raises as `Source.tables`."""
        ...


@runtime_checkable
class LakeNamingSource(Protocol):
    """A source whose server reads the lake as well, and knows which one."""

    def server_lakes(self) -> Sequence[ServerLake]:
        """Return each lake that lake-enabled tables have at the server. Raises as `Source.tables`."""
        ...


@runtime_checkable
class CheckedLake(Protocol):
    """A lake that can say whether its catalog and its files can be used."""

    def check(self, *, write: bool) -> Sequence[CheckResult]:
        """Try what a service does, with tables and files of its own that are gone afterwards.

        Without `write` it only reads, and nothing is created. A refusal is a result, not an error.
        """
        ...


@runtime_checkable
class SchemaCheckedLake(Protocol):
    """A lake that can say whether a source's table could be in it: for `lakeward config check`."""

    def check_schema(self, table: TableSpec) -> None:
        """Check a table's columns as `Lake.open_table` would, without asking the catalog.

        Raises:
            SchemaMismatchError: a column, its name or its type cannot be in a lake table, or not in a key there.
        """
        ...


@runtime_checkable
class ComparedLake(Protocol):
    """A lake that can compare its catalog with the one that a source's server is configured with."""

    def compare(self, server: ServerLake) -> CheckResult:
        """Say whether both are the same catalog. No secret is in the answer."""
        ...


def compare_clocks(what: str, theirs_ms: int, asked_ms: int, answered_ms: int) -> CheckResult:
    """Compare the clock of somebody else (`what`) with ours: a problem if they differ by more than `CLOCK_SKEW_MS`.

    Times are milliseconds since 1970; `theirs_ms` was shown at some moment between `asked_ms` and `answered_ms` of our
    clock.
    """
    if theirs_ms > answered_ms:
        skew, how = theirs_ms - answered_ms, "ahead of"
    else:
        skew, how = max(0, asked_ms - theirs_ms), "behind"
    if skew <= CLOCK_SKEW_MS:
        return CheckResult(what, ok=True, message=f"within {CLOCK_SKEW_MS // _MS} s of this machine's clock")
    message = f"{skew / _MS:.0f} s {how} this machine's clock"
    return CheckResult(what, ok=False, message=message, action="let both machines keep their time by NTP")
