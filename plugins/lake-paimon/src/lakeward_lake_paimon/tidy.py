"""Deletes what calls have left that died on the way, and that no journal names: files of stamps, and temporary files.

A stamp's files have its incarnation in their names. Once a stamp of that start or of a later one is on the table, no
other of that start can land any more: the number that it would get is taken.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakeward.model.identity import Incarnation
from lakeward_lake_paimon.files import kept_apart, metadata_of
from lakeward_lake_paimon.storage import is_leftover
from lakeward_lake_paimon.table import OWN_FOLDER, delete_older_copies, delete_older_stamps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_lake_paimon.table import HeldTable, Table

_STAMP = re.compile(r"(?:\.lakeward|manifest|manifest-list)-stamp-([^-]+-\d+-[0-9a-f]{16})-.+")
_TAGS = ("hint", "owner", "schema")
"""Of temporary files that are no commit's; whoever misses one that is deleted under him fails, and tries again."""


def stamp_label(incarnation: Incarnation, uuid: str) -> str:
    """Return what the names of a stamp's files have in common."""
    return f"stamp-{incarnation}-{uuid}"


def tidy(held: HeldTable) -> None:
    """Delete what nothing needs, and nobody else would find.

    Raises:
        StorageError: the storage refused; the next call goes on.
    """
    table, stamp = held.table, held.table.stamp
    if stamp is not None:
        _delete_stamps(table, stamp)
    for folder in ("snapshot", OWN_FOLDER, "schema"):
        for name in table.storage.names(f"{table.location}/{folder}"):
            if any(is_leftover(name, tag) for tag in _TAGS):
                table.storage.delete(f"{table.location}/{folder}/{name}")
    delete_older_copies(held)
    delete_older_stamps(held)


def _delete_stamps(table: Table, stamp: Incarnation) -> None:
    """Delete the files of stamps of this start and of earlier ones that no snapshot needs."""
    named = {name for snapshot in table.ours for name in snapshot.lists}
    found = [path for path in _stamp_files(table, stamp) if path.rpartition("/")[2] not in named]
    if not found:
        return
    # Those from before the table was adopted may be of an earlier life of it.
    metadata = metadata_of(table, [*table.snapshots, *kept_apart(table)])
    manifests = {f"{table.manifests.folder}/{name}" for names in metadata.values() for name in names}
    for path in found:
        if path not in metadata and path not in manifests:
            table.storage.delete(path)


def _stamp_files(table: Table, stamp: Incarnation) -> Iterator[str]:
    for folder in (table.manifests.folder, f"{table.location}/snapshot"):
        for name in table.storage.names(folder):
            named = _STAMP.fullmatch(name)
            if named is not None:
                who = Incarnation.parse(named[1])
                if who == stamp or stamp.succeeds(who):
                    yield f"{folder}/{name}"
