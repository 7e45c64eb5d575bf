"""Rows that do not fit the lake table: how many there are, and how many there may be (`on_bad_row`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import RowError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.model.tables import TablePath


class BadRows(msgspec.Struct, frozen=True, omit_defaults=True):
    """The records of a split that do not fit the lake table, so that they are in no data file.

    So many were `dropped`, so many became `dead_letters`, in files of this kind. `first` names the first of them all,
    in words, empty where there is none.
    """

    dropped: int = 0
    dead_letters: int = 0
    first: str = ""

    @property
    def total(self) -> int:
        """How many there are."""
        return self.dropped + self.dead_letters


NO_BAD_ROWS = BadRows()


def sum_of(parts: Iterable[BadRows]) -> BadRows:
    """Return those of all parts together."""
    found = [one for one in parts if one.total]
    dropped, letters = sum(one.dropped for one in found), sum(one.dead_letters for one in found)
    return BadRows(dropped, letters, found[0].first if found else "")


def check_most(path: TablePath, bad: BadRows, rows: int, most: float) -> None:
    """Check how many of `rows` records do not fit. `most`: so many may not, or below 1 this share of the records.

    Raises:
        RowError: more do not.
    """
    if bad.total > (most if most >= 1 else most * rows):
        allowed = f"{most:.0f} rows" if most >= 1 else f"a share of {most:g}"
        message = (
            f"table {path}: {bad.total} of {rows} records do not fit the lake table, and bad_rows_most allows "
            f"{allowed} of a round; the first of them: {bad.first}"
        )
        raise RowError(message)
