"""`lakeward verify`."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.chosen_tables import chosen_tables
from lakeward.cli.invocation import Invocation, pass_invocation, take_duration, with_common_options
from lakeward.cli.open_plugins import configured_table, open_records, opened_lake, opened_source
from lakeward.clock import SystemClock
from lakeward.errors import LakeError, LakeTableGoneError, LakewardError, OffsetsWentBackError, UsageError
from lakeward.hooks.discovery import load
from lakeward.hooks.plugins import SOURCE_GROUP
from lakeward.local_files import is_local
from lakeward.model.column_ids import lake_columns
from lakeward.model.dead_letters import path_of
from lakeward.model.patterns import has_wildcards
from lakeward.model.sizes import AS_TEXT, EXPECTED, parse_size
from lakeward.observe.files import service_folder
from lakeward.observe.format import seconds
from lakeward.observe.status_file import process_lives
from lakeward.observe.table_status import tiered_now
from lakeward.ports import ReadableLake
from lakeward.storage.commit_records import lost_commits
from lakeward.storage.late_commits import went_back
from lakeward_ops.verify.findings import Verified, failed, summary, verified
from lakeward_ops.verify.verification import Sides, TimeIsUpError, VerifyOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Lake, Source

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
@click.option(
    "--limit",
    metavar="TIME",
    callback=take_duration,
    help="Compare nothing more after 90s, 10m, 2h.  [default: no limit]",
)
@with_common_options
@pass_invocation
def verify(
    invocation: Invocation,
    *,
    table: str,
    available: bool,
    most: int,
    memory: str,
    files: int | None,
    limit: float | None,
) -> int:
    """Compare DB.TABLE in the lake with the source, row by row, up to the offsets that the lake has.

    A pattern such as `db.*` means all tables that it matches, one after the other: what differs is shown, then a
    summary; an error of one table does not keep the others from being compared.

    The lake is read by a library that Lakeward does not write with; the source is read from the beginning, or, for a
    table with a primary key, from a KV snapshot. A service may run meanwhile: one snapshot of the lake is compared with
    its own offsets. Rows are sorted into files in the state folder, so memory does not grow with the table.

    What the lake says of its data files (partition, bounds, counts, size, order) is compared with the files, for
    readers leave out files by it.

    Exit codes: 0 the two are equal, or nothing is tiered yet; 1 they differ, it failed, which is an error, or the time
    was over; 3 the source no longer has rows that the lake has: `--available` compares the others. Of several tables
    it is 1 where any is not equal.
    """
    loaded = invocation.load()
    memory_bytes = _memory_bytes(memory)
    with opened_source(loaded) as source, opened_lake(loaded) as lake, _spill_folder(loaded) as folder:
        options = VerifyOptions(folder, available, most, memory_bytes, files, _watch(limit))

        def compare(path: TablePath) -> Verified:
            sides = _sides(loaded, source, lake, configured_table(loaded, source, path))
            with tempfile.TemporaryDirectory(dir=folder) as own:
                return verified(str(path), sides, replace(options, folder=Path(own)))

        paths = chosen_tables(loaded, source, table)
        if not has_wildcards(table):
            only = compare(paths[0])
            invocation.output.show(only.document, *only.lines)
            return only.code
        every = [_tried(path, compare) for path in paths]
    invocation.output.show({"tables": [one.document for one in every]}, *summary(every))
    return max(one.code for one in every)


def _tried(path: TablePath, compare: Callable[[TablePath], Verified]) -> Verified:
    """Compare one of several tables; an error is what was found of it."""
    try:
        return compare(path)
    except LakewardError as error:
        return failed(str(path), error)


def _watch(limit_s: float | None) -> Callable[[], None]:
    """Return what raises once so many seconds have passed from now on."""
    clock = SystemClock()
    end = None if limit_s is None else clock.now() + limit_s

    def check() -> None:
        if end is not None and clock.now() >= end:
            message = f"not compared, for the limit of {seconds(limit_s or 0.0)} is over"
            raise TimeIsUpError(message)

    return check


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
    head = lake.head(spec.in_lake.path)
    if lost := lost_commits(source, spec, record, head):
        raise LakeTableGoneError(lost)
    offsets = tiered_now(source, spec, head, record)
    if head is None or offsets is None:
        return None
    if wrong := went_back(spec.path, record, head, offsets, source.buckets(spec)):
        raise OffsetsWentBackError(wrong)
    # The source's clients read the lake table by the source's names: for them a column that was renamed there is lost.
    by_id = {number: one for number, one in head.by_id.items() if not spec.union_read or one.name == one.source_name}
    spec = replace(spec, lake_columns=lake_columns(spec.schema, by_id))
    plugin: Any = load(SOURCE_GROUP, loaded.settings.source.type)
    path = path_of(spec.in_lake.path)
    letters = lake.head(path)
    ours = letters is not None and (letters.path, letters.table_id) == (path, spec.table_id)
    snapshot_id = letters.snapshot_id if letters is not None and ours else None
    return Sides(source, plugin.reader(source.reader_task(spec), spec), lake, spec, head, offsets, snapshot_id)


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
