"""`lakeward rounds show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import open_history
from lakeward.cli.output import Columns
from lakeward.cli.rounds.list import round_document
from lakeward.errors import UsageError
from lakeward.observe.format import count
from lakeward.observe.round_facts import PHASES, phases_of, round_facts
from lakeward.storage.round_history import find_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.status import RoundReport


@click.command("show")
@click.argument("name", metavar="ROUND")
@with_common_options
@pass_invocation
def show_round(invocation: Invocation, *, name: str) -> None:
    """Show ROUND: its full name, or TABLE_ID-EPOCH-NUMBER as `lakeward rounds list` shows it.

    If several starts of the service had a round of that short name, the newest is shown.
    """
    found = find_rounds(open_history(invocation.load()).read(), name)
    if not found:
        message = f"round {name!r}: no ended round of this name is kept; `lakeward rounds list` shows those that are"
        raise UsageError(message)
    invocation.output.show(round_document(found[0]), *_parts(found[0], others=len(found) - 1))


def _parts(one: RoundReport, others: int) -> Iterator[str | Columns]:
    yield f"round {one.round_name} of {one.table}: {one.outcome}"
    if others:
        yield f"({count(others, 'older round')} of other starts have this short name: name the full one to see it)"
    facts = list(round_facts(one))
    width = max(len(name) for name, _ in facts)
    yield from (f"{name:<{width}}  {text}" for name, text in facts)
    yield ""
    yield Columns(("phase", "seconds#", "what it is"), [_phase(one, name) for name in phases_of(one)])
    if one.offsets:
        yield ""
        yield Columns(("bucket", "offset after the round#"), [(b, count(n)) for b, n in one.offsets.items()])


def _phase(one: RoundReport, name: str) -> tuple[str, str, str]:
    return name, f"{one.timings_s[name]:.2f}", PHASES.get(name, "")
