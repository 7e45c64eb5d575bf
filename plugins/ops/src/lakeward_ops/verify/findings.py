"""What `lakeward verify` shows: of one table all that differs, of several a summary besides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.cli.output import Columns
from lakeward.errors import EXIT_FAILED
from lakeward.observe.format import count
from lakeward_ops.verify.comparison import KINDS
from lakeward_ops.verify.verification import TimeIsUpError, verify_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakeward.errors import LakewardError
    from lakeward.ports import FileDifference
    from lakeward_ops.verify.comparison import Comparison, Difference
    from lakeward_ops.verify.verification import Sides, Verification, VerifyOptions


_EQUAL = "equal"
_NOT_COMPARED = "NOT COMPARED"


@dataclass(frozen=True, slots=True)
class VerifyDocument:
    """What JSON gets. `counts` are rows by kind of difference.

    Where nothing was ever tiered, nothing was compared: `equal` and both numbers of rows are null.
    """

    table: str
    equal: bool | None
    snapshot_id: int | None
    offsets: dict[str, int]
    source_rows: int | None
    lake_rows: int | None
    left_out: int
    gone: tuple[str, ...]
    not_in_lake: tuple[str, ...]
    lost: Mapping[str, str]
    counts: dict[str, int]
    first: tuple[Difference, ...]
    wrong_in_files: int
    file_differences: tuple[FileDifference, ...]
    dead_letters: int = 0


def _nothing(table: str) -> VerifyDocument:
    return VerifyDocument(table, None, None, {}, None, None, 0, (), (), {}, dict.fromkeys(KINDS, 0), (), 0, ())


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found of one table: for JSON, as lines, in a word, and as an exit code."""

    table: str
    document: VerifyDocument | dict[str, str]
    lines: tuple[str | Columns, ...]
    result: str
    code: int = 0


def verified(table: str, sides: Sides | None, options: VerifyOptions) -> Verified:
    """Compare the two sides of a table, if anything was ever tiered; raises as `verify_table`."""
    if sides is None:
        line = f"{table}: nothing is tiered yet, so there is nothing to compare."
        return Verified(table, _nothing(table), (line,), "nothing tiered")
    try:
        options.check()
        found = verify_table(sides, options)
    except TimeIsUpError as over:
        document = {"table": table, "error": str(over)}
        return Verified(table, document, (f"{table}: {over}",), _NOT_COMPARED, EXIT_FAILED)
    finally:
        sides.reader.close()
    shown = _document(table, sides, found)
    lines = tuple(_lines(shown, found.comparison))
    return Verified(table, shown, lines, _EQUAL if found.equal else "DIFFERENT", 0 if found.equal else EXIT_FAILED)


def failed(table: str, error: LakewardError) -> Verified:
    """Return what is known of a table that could not be compared."""
    document = {"table": table, "error": str(error), "code": error.code}
    return Verified(table, document, (f"{table}: [{error.code}] {error}",), _NOT_COMPARED, EXIT_FAILED)


def summary(every: Sequence[Verified]) -> Iterator[str | Columns]:
    """Yield all that is wrong, then a line for each table, then how many are equal."""
    for one in every:
        if one.code:
            yield from (*one.lines, "")
    yield Columns(("table", "result"), [(one.table, one.result) for one in every])
    equal = sum(one.result == _EQUAL for one in every)
    wrong = sum(bool(one.code) for one in every)
    yield ""
    yield f"{equal} of {count(len(every), 'table')} equal, {wrong} different or not compared"


def _document(table: str, sides: Sides, found: Verification) -> VerifyDocument:
    comparison = found.comparison
    return VerifyDocument(
        table=table,
        equal=found.equal,
        snapshot_id=sides.head.snapshot_id,
        offsets={str(bucket): offset for bucket, offset in sides.tiered.items()},
        source_rows=comparison.source_rows,
        lake_rows=comparison.lake_rows,
        left_out=found.left_out,
        gone=found.gone,
        not_in_lake=found.not_in_lake,
        lost=found.lost,
        counts=comparison.counts,
        first=tuple(comparison.first),
        wrong_in_files=found.wrong_in_files,
        file_differences=found.file_differences,
        dead_letters=found.dead_letters,
    )


def _lines(document: VerifyDocument, comparison: Comparison) -> Iterator[str | Columns]:
    rows = f"{count(document.source_rows, 'row')} of the source, {count(document.lake_rows, 'row')} of the lake"
    result = "equal" if document.equal else "DIFFERENT"
    upto = sum(document.offsets.values())
    yield f"{document.table}: {result}: {rows} (snapshot {document.snapshot_id}, offsets {upto:,})"
    if document.left_out:
        yield f"not compared: {count(document.left_out, 'row')} of the lake that the source no longer has"
    if document.dead_letters:
        yield f"not compared: {count(document.dead_letters, 'dead letter')}, rows that do not fit the lake table"
    for text in document.gone:
        yield f"the source no longer has {text}"
    if document.not_in_lake:
        yield f"not compared: columns that the lake does not have yet: {', '.join(document.not_in_lake)}"
    for name, why in document.lost.items():
        yield f"the lake has no column `{name}`, which the source has: {why}"
    yield from _file_lines(document)
    if comparison.equal:
        return
    yield ""
    yield Columns(
        ("rows#", "difference", "what it means"),
        [(f"{comparison.counts[kind]:,}", kind, meaning) for kind, meaning in KINDS.items() if comparison.counts[kind]],
    )
    if not comparison.first:
        return
    yield ""
    yield _heading(comparison)
    key = tuple(comparison.first[0].key)
    yield Columns(
        (*key, "difference", "column", "source", "lake"),
        [(*one.key.values(), one.kind, one.column, one.source, one.lake) for one in comparison.first],
    )


def _file_lines(document: VerifyDocument) -> Iterator[str | Columns]:
    if not document.wrong_in_files:
        return
    yield ""
    yield f"The lake says of its files what is not so ({document.wrong_in_files:,} in all); readers miss rows by it:"
    rows = [(one.file, one.what, one.expected, one.found) for one in document.file_differences]
    yield Columns(("file", "what", "the file has", "the lake says"), rows)


def _heading(comparison: Comparison) -> str:
    shown, found = len(comparison.first), sum(comparison.counts.values())
    if shown > 1:
        return f"The first {count(shown, 'difference')}:"
    return "The difference:" if found == 1 else f"The first difference of {count(found)}:"
