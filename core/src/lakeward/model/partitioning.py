"""How a lake table is partitioned by the configuration, in Iceberg's transforms, and what that means for a round.

The transforms are those of the Iceberg specification, "Partition Transforms".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from lakeward.errors import UsageError
from lakeward.model.near_names import did_you_mean

TransformName = Literal["identity", "year", "month", "day", "hour", "bucket", "truncate"]
TRANSFORMS: tuple[TransformName, ...] = ("identity", "year", "month", "day", "hour", "bucket", "truncate")
WITH_ARGUMENT = frozenset({"bucket", "truncate"})
"""Transforms that take a number first: `bucket(16, id)`, `truncate(4, name)`."""
KEY_GROUPS = 256
"""Key groups of every exchange: its rows are divided among subtasks by whole groups, so this is the most subtasks."""
_LARGEST_ARGUMENT = 2**31 - 1
_DIGITS = re.compile(r"[0-9]+")
_CALL = re.compile(r"(?P<name>[A-Za-z]+)\s*\((?P<inside>.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a lake partitioning: a transform of a column. `argument` is None where the transform takes none."""

    transform: TransformName
    column: str
    argument: int | None = None

    @classmethod
    def parse(cls, text: str) -> PartitionField:
        """Read `column`, `day(column)` or `bucket(16, column)`.

        Raises:
            UsageError: not of that form; names what was found.
        """
        text = text.strip()
        call = _CALL.fullmatch(text)
        if call is None:
            if not text or "(" in text or ")" in text:
                message = f"expected a column or a transform such as `day(column)`, found {text!r}"
                raise UsageError(message)
            return cls("identity", text)
        name = call["name"].lower()
        transform = next((known for known in TRANSFORMS if known == name), None)
        if transform is None:
            meant = f" ({question[0].lower()}{question[1:]})" if (question := did_you_mean(name, TRANSFORMS)) else ""
            message = f"expected one of the transforms {', '.join(TRANSFORMS)}, found {call['name']!r}{meant}"
            raise UsageError(message)
        argument, column = _arguments(transform, call["inside"], text)
        return cls(transform, column, argument)

    def __str__(self) -> str:
        """The form that `parse` reads; an identity is the column alone."""
        if self.transform == "identity":
            return self.column
        inside = self.column if self.argument is None else f"{self.argument}, {self.column}"
        return f"{self.transform}({inside})"


class ExchangeMode(Enum):
    """How rows get from readers to writers."""

    NONE = "none"
    """The subtask that reads a row writes it."""
    HASH = "hash"
    """A row goes to the subtask that owns the key group of its lake partition (and bucket)."""


def key_group_range(subtask: int, subtasks: int) -> tuple[int, int]:
    """Return the first key group of a subtask, and the one after its last.

    The groups of all subtasks together are all groups, each once (flink.md, key groups). Subtasks are numbered from 0;
    there are at most `KEY_GROUPS`.
    """
    first = (subtask * KEY_GROUPS + subtasks - 1) // subtasks
    end = ((subtask + 1) * KEY_GROUPS - 1) // subtasks + 1
    return first, end


def subtask_of(key_group: int, subtasks: int) -> int:
    """Return which of so many subtasks owns a key group, 0 to `KEY_GROUPS` - 1."""
    return key_group * subtasks // KEY_GROUPS


def _arguments(transform: TransformName, inside: str, text: str) -> tuple[int | None, str]:
    number, comma, column = inside.partition(",")
    if transform not in WITH_ARGUMENT:
        number, comma, column = "", "", inside
    column = column.strip()
    wanted = f"{transform}(N, column)" if transform in WITH_ARGUMENT else f"{transform}(column)"
    if (
        not column
        or set(column) & set("()")
        or (transform in WITH_ARGUMENT and (not comma or not _DIGITS.fullmatch(number.strip())))
    ):
        message = f"expected `{wanted}`, found {text!r}"
        raise UsageError(message)
    if transform not in WITH_ARGUMENT:
        return None, column
    # By its length first: Python refuses to read a number of thousands of digits.
    digits = number.strip().lstrip("0")
    if not digits or len(digits) > len(str(_LARGEST_ARGUMENT)) or int(digits) > _LARGEST_ARGUMENT:
        message = f"expected `{wanted}` with N from 1 to {_LARGEST_ARGUMENT}, found {text!r}"
        raise UsageError(message)
    return int(digits), column
