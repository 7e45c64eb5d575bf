"""How `doctor` and `config check` show what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.cli.output import Columns
from lakeward.errors import EXIT_FAILED
from lakeward.ports import CheckResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.cli.invocation import Invocation

Check = CheckResult | tuple[str, bool, str]
"""What was looked at, whether it is well, and a message; a `CheckResult` also says what to do."""


def as_result(check: Check) -> CheckResult:
    """Return a check as a `CheckResult`."""
    return check if isinstance(check, CheckResult) else CheckResult(*check)


def show_checks(invocation: Invocation, checks: Iterable[Check], **more: object) -> int:
    """Show the checks, one line each; a JSON document has `more` besides. Return 0 where all is well, else 1."""
    found = tuple(as_result(check) for check in checks)
    well = all(one.ok for one in found)
    document = {
        "ok": well,
        "checks": found,
    }
    document |= more
    rows = [(_status(one), one.what, one.message, one.action) for one in found]
    names = ("", "what", "found", "what to do")
    shown = len(names) if any(one.action for one in found) else len(names) - 1
    invocation.output.show(document, Columns(names[:shown], [row[:shown] for row in rows]))
    return 0 if well else EXIT_FAILED


def _status(check: CheckResult) -> str:
    if not check.ok:
        return "problem"
    return "warning" if check.warning else "ok"
