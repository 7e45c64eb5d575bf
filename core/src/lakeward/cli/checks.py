"""How `doctor` and `config check` show what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.cli.output import Columns
from lakeward.errors import EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.cli.invocation import Invocation

Check = tuple[str, bool, str]
"""What was looked at, whether it is well, and a message."""


def show_checks(invocation: Invocation, checks: Iterable[Check]) -> int:
    """Show the checks, one line each.

    Args:
        invocation: for the form of the output.
        checks: what was found.

    Returns:
        The exit code: 0 where all is well, else 1.
    """
    found = tuple(checks)
    well = all(ok for _, ok, _ in found)
    document = {"ok": well, "checks": [{"what": what, "ok": ok, "message": text} for what, ok, text in found]}
    rows = [("ok" if ok else "FAILED", what, text) for what, ok, text in found]
    invocation.output.show(document, Columns(("", "what", "found"), rows))
    return 0 if well else EXIT_FAILED
