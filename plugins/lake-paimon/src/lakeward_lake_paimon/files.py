"""Which files a table's snapshots need, and where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.lake_offsets import OFFSETS_FILE
from lakeward_lake_paimon.binary_row import decode_row
from lakeward_lake_paimon.datafile import PARQUET
from lakeward_lake_paimon.partitions import partition_folder
from lakeward_lake_paimon.snapshots import Snapshots
from lakeward_lake_paimon.storage import is_leftover
from lakeward_lake_paimon.table import OWN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from lakeward_lake_paimon.manifests import Entry
    from lakeward_lake_paimon.snapshots import Snapshot
    from lakeward_lake_paimon.storage import Storage
    from lakeward_lake_paimon.table import Table

_ANYWHERE = "/**/*-"
"""In a round's prefix: its files lie in the folders of all buckets, and have the round in their names."""


def round_token(round_id: object) -> str:
    """Return what the names of a round's files have in common."""
    return str(round_id).replace("/", "-")


def round_prefix(location: str, round_id: object) -> str:
    """Return the prefix of a round's files, such as `/lake/db.db/t/**/*-svc-1700000000000-0123456789abcdef-7-1-1-`."""
    return f"{location}{_ANYWHERE}{round_token(round_id)}-"


def list_prefix(storage: Storage, prefix: str) -> tuple[str, ...]:
    """Return the files of a round by its prefix, or those under a folder."""
    location, anywhere, token = prefix.partition(_ANYWHERE)
    if not anywhere:
        return storage.list(prefix)
    found = storage.list(location)
    return tuple(path for path in found if f"-{token}" in path.rpartition("/")[2] and path.endswith(PARQUET))


def paths_of(table: Table, entry: Entry) -> Iterator[str]:
    """Yield the paths of a data file and of the files beside it that belong to it."""
    elsewhere = entry.file.extra.get("_EXTERNAL_PATH")
    if elsewhere:
        folder = str(elsewhere).rpartition("/")[0]
    else:
        kinds = [field.kind for field in table.schema.named(table.schema.partition_keys)]
        values = decode_row(entry.partition, kinds)
        folder = f"{table.location}/{partition_folder(table.schema, values)}bucket-{entry.bucket}"
    for name in (entry.file.name, *entry.file.side_files):
        yield f"{folder}/{name}"


def own_file(table: Table, name: str) -> str:
    """Return the path of a file of ours beside Paimon's."""
    return f"{table.location}/{OWN_FOLDER}/{name}"


def retained(table: Table) -> list[Snapshot]:
    """Return the snapshots that may need files of ours: those since we came, tags, the copy of our newest commit."""
    return [*table.ours, *kept_apart(table)]


def kept_apart(table: Table) -> list[Snapshot]:
    """Return the snapshots that tags keep, and the copy of our newest commit."""
    copy = [] if table.copy is None else [table.copy]
    return [*Snapshots(table.storage, table.location).tagged(), *copy]


def metadata_of(table: Table, snapshots: Iterable[Snapshot]) -> dict[str, list[str]]:
    """Return the manifests that snapshots are known from, by the paths of the lists, manifests and offsets files.

    Raises:
        CorruptFileError: a list of the head is gone; it may have been expired since the table was read.
    """
    manifests, head = table.manifests, table.latest
    there = manifests.names()
    found: dict[str, list[str]] = {}
    for snapshot in snapshots:
        if (name := snapshot.said.get(OFFSETS_FILE)) is not None:
            found[own_file(table, name)] = []
        for one in snapshot.lists:
            path = f"{manifests.folder}/{one}"
            # A copy may be of a snapshot whose lists were deleted with it, and so may one that is expired meanwhile.
            # What the head needs has to be known: all later snapshots go on from it.
            if path not in found and (snapshot is head or one in there):
                found[path] = [manifest.name for manifest in manifests.read_list(one)]
    return found


def referenced(table: Table, files: Collection[str]) -> frozenset[str]:
    """Return those of some files that a retained snapshot of the table needs. Raises as `metadata_of`."""
    if not files:
        return frozenset()
    wanted = frozenset(files)
    metadata = metadata_of(table, retained(table))
    manifests = sorted({name for names in metadata.values() for name in names})
    needed = {*metadata, *(f"{table.manifests.folder}/{name}" for name in manifests)}
    if any(path.endswith(PARQUET) for path in wanted):
        for entry in table.manifests.entries_of(manifests):
            needed.update(paths_of(table, entry))
    return wanted & needed


def leftovers(table: Table, uuid: str) -> tuple[str, ...]:
    """Return what a commit of this uuid wrote, besides the snapshot; of a stamp, `uuid` is its label."""
    found = [
        f"{table.manifests.folder}/{name}"
        for name in table.storage.names(table.manifests.folder)
        if name.startswith((f"manifest-{uuid}-", f"manifest-list-{uuid}-"))
    ]
    offsets = f"offsets-{uuid}"
    found += [
        own_file(table, name) for name in table.storage.names(f"{table.location}/{OWN_FOLDER}") if name == offsets
    ]
    folder = f"{table.location}/snapshot"
    found += [f"{folder}/{name}" for name in table.storage.names(folder) if is_leftover(name, uuid)]
    return tuple(found)
