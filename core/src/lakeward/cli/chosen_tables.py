"""What a command does for the tables that its argument means: one, or all that a pattern such as `db.*` matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lakeward.cli.open_plugins import all_configured
from lakeward.config.tables import table_rules
from lakeward.errors import EXIT_FAILED, LakewardError, UsageError
from lakeward.model.patterns import has_wildcards, matches
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from lakeward.cli.invocation import Invocation
    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Source


class TableAnswer(NamedTuple):
    """What became of one table: for JSON, as a sentence, and as an exit code."""

    document: dict[str, object]
    message: str
    code: int = 0


def chosen_tables(loaded: Loaded, source: Source, text: str, others: Iterable[TablePath] = ()) -> tuple[TablePath, ...]:
    """Return the tables that an argument means, in the order of their names.

    A name stands for itself, whether there is such a table or not. A pattern stands for all tables of the source that
    it matches and that are not excluded, and for those of `others` that it matches.

    Raises:
        SourceError: as `Source.tables`.
        UsageError: no table matches, or it is of another form.
    """
    path = TablePath.parse(text)
    if not has_wildcards(text):
        return (path,)
    return matching(text, [table.path for table in included_tables(loaded, source)], others)


def included_tables(loaded: Loaded, source: Source) -> list[TableSpec]:
    """Return all tables that are not excluded, as the configuration has them; raises as `Source.tables`."""
    return [table for table in all_configured(loaded, source) if table_rules(loaded, table.path).settings.include]


def matching(text: str, paths: Collection[TablePath], others: Iterable[TablePath] = ()) -> tuple[TablePath, ...]:
    """Return those of the source's tables, and of others, that a pattern matches, in the order of their names.

    Raises:
        UsageError: there is none.
    """
    found = sorted((path for path in {*paths, *others} if matches(text, path)), key=str)
    if not found:
        message = f"{text}: no table of the source matches; it has {len(paths)} that are tiered"
        raise UsageError(message)
    return tuple(found)


def do_for_each(
    invocation: Invocation, text: str, paths: Sequence[TablePath], do: Callable[[TablePath], TableAnswer]
) -> int:
    """Do something for each table, and show what became of it; return the exit code.

    Of several tables an error of one does not keep the others from being done.

    Raises:
        LakewardError: the one table that was named cannot be done.
    """
    if not has_wildcards(text):
        done = do(paths[0])
        invocation.output.show(done.document, done.message)
        return done.code
    every = [_tried(path, do) for path in paths]
    invocation.output.show({"tables": [one.document for one in every]}, *(one.message for one in every))
    return max(one.code for one in every)


def _tried(path: TablePath, do: Callable[[TablePath], TableAnswer]) -> TableAnswer:
    try:
        return do(path)
    except LakewardError as error:
        document: dict[str, object] = {"table": str(path), "error": str(error), "code": error.code}
        return TableAnswer(document, f"{path}: [{error.code}] {error}", EXIT_FAILED)
