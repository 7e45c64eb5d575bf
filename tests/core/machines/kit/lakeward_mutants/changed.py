"""What is changed for a mutant: a table of rules, or an entry of a table of handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from lakeward.machines.machine import Rule, Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pytest

    Held = TypeVar("Held")
    Command = TypeVar("Command")


def with_rules(rules: Rules[Held, Command], *rows: Rule[Any, Command]) -> Rules[Held, Command]:
    """Return a table in which these rules come first: the first one that applies is executed."""
    return Rules(rules.name, rules.states, *rows, *rules.rows)


def handle(
    monkeypatch: pytest.MonkeyPatch,
    handlers: Mapping[type[Any], Callable[..., Iterable[Any]]],
    kind: type[Any],
    wrong: Callable[..., Iterable[Any]],
) -> None:
    """Put a handler into the place of another one."""
    monkeypatch.setitem(cast("dict[type[Any], Callable[..., Iterable[Any]]]", handlers), kind, wrong)
