"""How `doctor` and `config check` show what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.cli.output import Columns
from lakeward.errors import EXIT_FAILED
from lakeward.observe.format import count
from lakeward.ports import CheckResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakeward.cli.invocation import Invocation

Check = CheckResult | tuple[str, bool, str]
"""What was looked at, whether it is well, and a message; a `CheckResult` also says what to do."""
_NAMED = 3
"""So many of the tables of one line are named."""


def as_result(check: Check) -> CheckResult:
    """Return a check as a `CheckResult`."""
    return check if isinstance(check, CheckResult) else CheckResult(*check)


def show_checks(invocation: Invocation, checks: Iterable[Check], **more: object) -> int:
    """Show the checks; a JSON document has `more` besides. Return 0 where all is well, else 1.

    As text, checks of tables that found the same are one line, so that all is seen at once, however many tables there
    are; JSON has each.
    """
    found = tuple(as_result(check) for check in checks)
    well = all(one.ok for one in found)
    document = {
        "ok": well,
        "checks": found,
    }
    document |= more
    rows = _rows(found)
    names = ("", "what", "found", "what to do")
    shown = len(names) if any(one.action for one in found) else len(names) - 1
    invocation.output.show(document, Columns(names[:shown], [row[:shown] for row in rows]))
    return 0 if well else EXIT_FAILED


def _rows(checks: Iterable[CheckResult]) -> list[tuple[str, str, str, str]]:
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for one in checks:
        what, _, table = one.what.partition(" of ")
        alike.setdefault((_status(one), what, one.message, one.action), []).append(table)
    return [
        (status, " of ".join(filter(None, [what, _named(tables)])), message, action)
        for (status, what, message, action), tables in alike.items()
    ]


def _named(tables: Sequence[str]) -> str:
    """Name tables: of several, how many they are, and the first of them."""
    if len(tables) == 1 or not tables[0]:
        return tables[0]
    first = ", ".join(tables[:_NAMED])
    return f"{count(len(tables), 'table')} ({first}{', ...' if len(tables) > _NAMED else ''})"


def _status(check: CheckResult) -> str:
    if not check.ok:
        return "problem"
    return "warning" if check.warning else "ok"
