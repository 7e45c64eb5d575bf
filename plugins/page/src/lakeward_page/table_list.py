"""Which tables the page lists, and in which order: as its address says (`/?q=orders&status=late&sort=lag`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakeward_page.tables_view import TableRow

PAGE_ROWS = 50
"""Rows of one page: as many as can be read, and sent every two seconds."""
_DIGITS = 9
"""Of the number of a page, less than so many."""
_ORDER = {"bad": 0, "warn": 1, "busy": 2}
_FIELDS = ("q", "status", "database", "cause", "sort")


@dataclass(frozen=True, slots=True)
class Query:
    """What the address asks for; an empty text asks for nothing. `sort` has a minus for the greatest first.

    `at` is the page that lists the tables.
    """

    q: str = ""
    status: str = ""
    database: str = ""
    cause: str = ""
    sort: str = ""
    page: int = 1
    at: str = "/"

    @classmethod
    def of(cls, given: Mapping[str, str], at: str = "/") -> Query:
        """Read the parameters of an address; what is not understood is left out."""
        number = given.get("page", "")
        page = max(1, int(number)) if number.isascii() and number.isdigit() and len(number) < _DIGITS else 1
        found = cls(**{name: given.get(name, "").strip() for name in _FIELDS}, page=page, at=at)
        return found if found.sort.removeprefix("-") in _KEYS else replace(found, sort="")

    @property
    def narrows(self) -> bool:
        """Whether some tables are left out."""
        return bool(self.q or self.status or self.database or self.cause)

    def address(self, **changes: Any) -> str:  # noqa: ANN401 - values of the fields
        """Return the address of this query with other values; of the first page, unless that is changed."""
        asked = replace(self, **({"page": 1} | changes))
        pairs = [(name, getattr(asked, name)) for name in _FIELDS if getattr(asked, name)]
        pairs += [("page", str(asked.page))] if asked.page > 1 else []
        return f"{self.at}?{urlencode(pairs)}#tables" if pairs else f"{self.at}#tables"

    def takes(self, row: TableRow) -> bool:
        """Return whether a table is one of those that are asked for."""
        report = row.report
        return (
            self.q.lower() in report.path.lower()
            and self.status in {"", row.status.text}
            and self.database in {"", _database(row)}
            and self.cause in {"", report.code}
        )


@dataclass(frozen=True, slots=True)
class Heading:
    """A column's heading: its name, the address that sorts by it, and how it is sorted now (a value of `aria-sort`)."""

    name: str
    address: str
    sorted: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class TableList:
    """One page of the tables that are asked for. `found` and `all` are numbers of tables, `first` counts from 1."""

    query: Query
    rows: Sequence[TableRow]
    headings: Sequence[Heading]
    statuses: Sequence[str]
    databases: Sequence[str]
    causes: Sequence[str]
    all: int
    found: int
    first: int
    before: str
    """The address of the page before, empty where there is none."""
    after: str

    @property
    def last(self) -> int:
        """The number of the last row that is shown."""
        return self.first + len(self.rows) - 1


def table_list(rows: Sequence[TableRow], query: Query) -> TableList:
    """Return one page of tables; `rows` are ordered by `urgency`."""
    found = _sorted([row for row in rows if query.takes(row)], query.sort)
    pages = max(1, -(-len(found) // PAGE_ROWS))
    query = replace(query, page=min(query.page, pages))
    start = (query.page - 1) * PAGE_ROWS
    return TableList(
        query=query,
        rows=found[start : start + PAGE_ROWS],
        headings=tuple(_heading(name, key, query) for name, key in _COLUMNS),
        statuses=_values(query.status, (row.status.text for row in rows)),
        databases=_values(query.database, map(_database, rows)),
        causes=_values(query.cause, (row.report.code for row in rows)),
        all=len(rows),
        found=len(found),
        first=start + 1,
        before=query.address(page=query.page - 1) if query.page > 1 else "",
        after=query.address(page=query.page + 1) if query.page < pages else "",
    )


def _database(row: TableRow) -> str:
    return row.report.path.partition(".")[0]


def _values(chosen: str, values: Iterable[str]) -> Sequence[str]:
    return sorted({chosen, *values} - {""})


def urgency(row: TableRow) -> tuple[int, int, str]:
    """Return the sort key of a row: first what is wrong, then what is late, then what is at work; each by name."""
    return _ORDER.get(row.status.kind, 3), _ORDER.get(row.phase.kind, 3), row.report.path


def _sorted(rows: list[TableRow], sort: str) -> list[TableRow]:
    if sort:
        key = _KEYS[sort.removeprefix("-")]
        known = [row for row in rows if key(row) is not None]
        known.sort(key=key, reverse=sort.startswith("-"))
        return known + [row for row in rows if key(row) is None]
    return rows


def _heading(name: str, key: str, query: Query) -> Heading:
    number = key not in _TEXTS
    first = f"-{key}" if number else key
    other = key if number else f"-{key}"
    now = {key: "ascending", f"-{key}": "descending"}.get(query.sort, "none")
    return Heading(name, query.address(sort=other if query.sort == first else first), now, number)


_KEYS: dict[str, Callable[[TableRow], Any]] = {
    "table": lambda row: row.report.path,
    "status": lambda row: row.status.text,
    "work": lambda row: row.phase.text,
    "complete": lambda row: row.report.complete_ms,
    "promised": lambda row: row.report.freshness_s,
    "rows": lambda row: row.report.lag_rows,
    "lag": lambda row: row.report.lag_s,
    "queue": lambda row: row.report.queue_position,
    "files": lambda row: row.report.lake_files,
    "commit": lambda row: row.report.committed_ms,
    "rounds": lambda row: row.report.rounds,
    "tiered": lambda row: row.report.rows,
}
_TEXTS = frozenset({"table", "status", "work"})
_COLUMNS = (
    ("Table", "table"),
    ("Status", "status"),
    ("Work", "work"),
    ("Complete up to", "complete"),
    ("Promised", "promised"),
    ("Lag, rows", "rows"),
    ("Lag, time", "lag"),
    ("Queue", "queue"),
    ("Lake files", "files"),
    ("Last commit", "commit"),
    ("Rounds", "rounds"),
    ("Rows tiered", "tiered"),
)
