"""`lakeward verify`."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import configured_table, open_records, opened_lake, opened_source
from lakeward.cli.output import Columns
from lakeward.errors import EXIT_FAILED, LakeError, LakeTableGoneError, OffsetsWentBackError, UsageError
from lakeward.hooks.discovery import load
from lakeward.hooks.plugins import SOURCE_GROUP
from lakeward.local_files import is_local
from lakeward.model.sizes import AS_TEXT, EXPECTED, parse_size
from lakeward.model.tables import TablePath
from lakeward.observe.files import service_folder
from lakeward.observe.format import count
from lakeward.observe.status_file import process_lives
from lakeward.observe.table_status import tiered_now
from lakeward.ports import ReadableLake
from lakeward.storage.commit_records import lost_commits
from lakeward.storage.late_commits import went_back
from lakeward_ops.verify.comparison import KINDS
from lakeward_ops.verify.verification import Sides, VerifyOptions, verify_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TableSpec
    from lakeward.ports import FileDifference, Lake, Source
    from lakeward_ops.verify.comparison import Comparison, Difference
    from lakeward_ops.verify.verification import Verification

_FOLDER = "verify"


@click.command("verify")
@click.argument("table", metavar="DB.TABLE")
@click.option("--available", is_flag=True, help="Compare what the source still has, and leave out the rest.")
@click.option(
    "--most", type=click.IntRange(min=0), default=10, show_default=True, help="Differences that are shown, at most."
)
@click.option(
    "--memory", default="512 MiB", show_default=True, metavar="SIZE", help="About how much memory rows may take."
)
@click.option(
    "--files",
    type=click.IntRange(min=0),
    metavar="N",
    help="Compare what the lake says of its data files with N of them.  [default: all]",
)
@with_common_options
@pass_invocation
def verify(invocation: Invocation, *, table: str, available: bool, most: int, memory: str, files: int | None) -> int:
    """Compare DB.TABLE in the lake with the source, row by row, up to the offsets that the lake has.

    The lake is read by a library that Lakeward does not write with; the source is read from the beginning, or, for a
    table with a primary key, from a KV snapshot. A service may run meanwhile: one snapshot of the lake is compared with
    its own offsets. Rows are sorted into files in the state folder, so memory does not grow with the table.

    What the lake says of its data files (partition, bounds, counts, size, order) is compared with the files, for
    readers leave out files by it.

    Exit codes: 0 the two are equal, or nothing is tiered yet; 1 they differ, or it failed, which is an error; 3 the
    source no longer has rows that the lake has: `--available` compares the others.
    """
    loaded = invocation.load()
    path = TablePath.parse(table)
    memory_bytes = _memory_bytes(memory)
    with opened_source(loaded) as source, opened_lake(loaded) as lake, _spill_folder(loaded) as folder:
        spec = configured_table(loaded, source, path)
        sides = _sides(loaded, source, lake, spec)
        if sides is None:
            invocation.output.show(_nothing(table), f"{table}: nothing is tiered yet, so there is nothing to compare.")
            return 0
        try:
            found = verify_table(sides, VerifyOptions(folder, available, most, memory_bytes, files))
        finally:
            sides.reader.close()
    _show(invocation, table, sides, found)
    return 0 if found.equal else EXIT_FAILED


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


def _nothing(table: str) -> VerifyDocument:
    return VerifyDocument(table, None, None, {}, None, None, 0, (), (), {}, dict.fromkeys(KINDS, 0), (), 0, ())


def _sides(loaded: Loaded, source: Source, lake: Lake, spec: TableSpec) -> Sides | None:
    """Return what is compared, None where nothing was ever tiered.

    Raises:
        LakeTableGoneError: the lake table that held commits is not there.
        OffsetsWentBackError: another service's late commit is behind our own newest one.
    """
    if not isinstance(lake, ReadableLake):
        message = f"lake {loaded.settings.lake.type!r}: cannot be verified: it offers no `read_rows`"
        raise LakeError(message)
    # The record before the head: a service that runs writes it after its commit, so the head has what it names.
    record = open_records(loaded).read(spec.table_id)
    head = lake.head(spec.path)
    if lost := lost_commits(source, spec, record, head):
        raise LakeTableGoneError(lost)
    offsets = tiered_now(source, spec, head, record)
    if head is None or offsets is None:
        return None
    if wrong := went_back(spec.path, record, head, offsets, source.buckets(spec)):
        raise OffsetsWentBackError(wrong)
    plugin: Any = load(SOURCE_GROUP, loaded.settings.source.type)
    return Sides(source, plugin.reader(source.reader_task(spec), spec), lake, spec, head, offsets)


def _show(invocation: Invocation, table: str, sides: Sides, found: Verification) -> None:
    comparison = found.comparison
    document = VerifyDocument(
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
    )
    invocation.output.show(document, *_lines(document, comparison))


def _lines(document: VerifyDocument, comparison: Comparison) -> Iterator[str | Columns]:
    rows = f"{count(document.source_rows, 'row')} of the source, {count(document.lake_rows, 'row')} of the lake"
    result = "equal" if document.equal else "DIFFERENT"
    upto = sum(document.offsets.values())
    yield f"{document.table}: {result}: {rows} (snapshot {document.snapshot_id}, offsets {upto:,})"
    if document.left_out:
        yield f"not compared: {count(document.left_out, 'row')} of the lake that the source no longer has"
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


@contextmanager
def _spill_folder(loaded: Loaded) -> Iterator[Path]:
    """Make a folder for spilled rows in the state folder if there is one, and delete it afterwards."""
    root = loaded.settings.checkpoint.root
    state = service_folder(root, loaded.settings.service.name) if is_local(root) else None
    if state is None or not state.is_dir():
        with tempfile.TemporaryDirectory(prefix="lakeward-verify-") as folder:
            yield Path(folder)
        return
    parent = state / _FOLDER
    _delete_folders_of_dead_processes(parent)
    parent.mkdir(mode=0o700, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=f"{os.getpid()}-", dir=parent) as folder:
            yield Path(folder)
    finally:
        with suppress(OSError):  # another process verifies a table
            parent.rmdir()


def _delete_folders_of_dead_processes(parent: Path) -> None:
    for old in parent.iterdir() if parent.is_dir() else ():
        pid = old.name.partition("-")[0]
        if pid.isdecimal() and not process_lives(int(pid)):
            shutil.rmtree(old, ignore_errors=True)


def _memory_bytes(text: str) -> int:
    found = parse_size(text)
    if not found:
        message = f"--memory: expected {EXPECTED}, {AS_TEXT}, found {text!r}"
        raise UsageError(message)
    return found
