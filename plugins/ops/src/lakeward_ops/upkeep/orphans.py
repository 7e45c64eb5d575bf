"""`lakeward upkeep orphans`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.chosen_tables import TableAnswer, chosen_tables, do_for_each
from lakeward.cli.invocation import Invocation, pass_invocation, take_duration, with_common_options
from lakeward.cli.open_plugins import opened_lake, opened_source
from lakeward.clock import SystemClock
from lakeward.config.tables import lake_path
from lakeward.errors import EXIT_FAILED, UsageError
from lakeward.observe.format import count, size
from lakeward.ports import Lake, OrphanLake
from lakeward.storage.round_journal import JournalStore
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.config.loaded import Loaded
    from lakeward.model.tables import TablePath
    from lakeward.model.upkeep import OrphanFile

_LEAST_S = 86_400
"""A commit of another engine may be under way for so long, and clocks differ."""
_SHOWN = 20


@click.command("orphans")
@click.argument("table", metavar="DB.TABLE")
@click.option(
    "--older-than",
    metavar="TIME",
    default="7d",
    show_default=True,
    callback=take_duration,
    help="Only files that were written before, such as 36h or 7d; at least 1d.",
)
@click.option("--delete", is_flag=True, help="Delete them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_common_options
@pass_invocation
def orphans(invocation: Invocation, *, table: str, older_than: float, delete: bool, yes: bool) -> int:
    """Show files in the folders of the lake table of DB.TABLE that nothing names, and delete them if that is asked.

    Commits of other engines that never landed leave such files. Lakeward finds its own by its journals. Files stay that
    a snapshot of any branch or tag or the metadata names, and those of rounds that are not settled. A young file may be
    of a commit that is under way: let no engine commit files that are older than TIME, such as a job that goes on
    from an old savepoint. A pattern such as `db.*` means all tables that it matches.
    """
    if older_than < _LEAST_S:
        message = "--older-than: expected at least 1d: a younger file may be of a commit that is under way"
        raise UsageError(message)
    loaded = invocation.load()
    with opened_source(loaded) as source:
        paths = chosen_tables(loaded, source, table)
    with opened_lake(loaded) as lake:
        if not isinstance(lake, OrphanLake):
            message = f"lake {loaded.settings.lake.type!r}: it does not find files that nothing names"
            raise UsageError(message)

        def do(path: TablePath) -> TableAnswer:
            found = _found(loaded, lake, path, older_than)
            question = f"{path}: delete {_summary(found)}?"
            deleted = bool(found) and delete and (yes or click.confirm(question, err=True))
            if deleted:
                lake.delete([one.path for one in found])
            document = {"table": str(path), "files": found, "deleted": deleted}
            code = EXIT_FAILED if delete and found and not deleted else 0
            return TableAnswer(document, _told(path, found, deleted=deleted), code)

        return do_for_each(invocation, table, paths, do)


def _found(loaded: Loaded, lake: Lake, path: TablePath, older_s: float) -> Sequence[OrphanFile]:
    """Return the files that are meant.

    Raises:
        UsageError: no service of this state root has tiered the table: what others keep is not known.
    """
    in_lake = lake_path(loaded, path)
    head = lake.head(in_lake)
    files = SmallFiles(loaded.settings.checkpoint.address)
    services = files.folders("")
    if head is None or head.stamp is None or head.stamp.service not in services:
        found = "none" if head is None or head.stamp is None else f"that of service {head.stamp.service!r}"
        message = (
            f"{path}: expected the stamp of a service with its state in {loaded.settings.checkpoint.address}, found "
            f"{found}: only the state says which files a round may still commit"
        )
        raise UsageError(message)
    kept: set[str] = set()
    for name in services:
        for journal in JournalStore(files, name).list():
            kept |= {journal.file_prefix, journal.letters_prefix, *(uuid for uuid, _ in journal.commits)}
            kept |= set() if journal.letters is None else {uuid for uuid, _ in journal.letters.commits}
    assert isinstance(lake, OrphanLake)  # noqa: S101 - checked before
    before_ms = SystemClock().wall_ms() - round(older_s * 1000)
    return lake.find_orphans(in_lake, sorted(kept - {""}), before_ms)


def _summary(found: Sequence[OrphanFile]) -> str:
    return f"{count(len(found), 'file')} of {size(sum(one.size_bytes for one in found))} that nothing names"


def _told(path: TablePath, found: Sequence[OrphanFile], *, deleted: bool) -> str:
    if not found:
        return f"{path}: no file that nothing names."
    lines = [f"{path}: {'deleted ' if deleted else ''}{_summary(found)}.", *(f"  {one.path}" for one in found[:_SHOWN])]
    more = [] if len(found) <= _SHOWN else [f"  ... and {count(len(found) - _SHOWN)} more (-o json lists all)"]
    return "\n".join([*lines, *more, *([] if deleted else ["Nothing was deleted: --delete does."])])
