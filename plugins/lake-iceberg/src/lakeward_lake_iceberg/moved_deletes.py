"""Deletes of rows whose files were merged meanwhile: they are written again, for the files where the rows are now.

They lie beside the metadata, and are named after their commit: what a commit leaves that does not land is looked for
there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestContent

from lakeward.errors import CorruptFileError, FencedError
from lakeward_lake_iceberg.detail import unpack_detail
from lakeward_lake_iceberg.entries import live_entries, manifests_in
from lakeward_lake_iceberg.head import Ancestry, read_bytes, summary_of
from lakeward_lake_iceberg.moves import MOVES_FILE, Merge, unpack_moves
from lakeward_lake_iceberg.positions import DeletePlace, delete_file_of, read_positions, union, write_positions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyiceberg.table import Table

    from lakeward.model.results import CommitIds, CommitRequest, LakeFile
    from lakeward_lake_iceberg.keys import Codes
    from lakeward_lake_iceberg.storage import Storage


@dataclass(frozen=True, slots=True)
class MovedDeletes:
    """Positions of deleted rows in files that others were merged into; `merges` has the merge that has written each."""

    positions: Mapping[str, list[Codes]] = field(default_factory=dict)
    merges: Mapping[str, Merge] = field(default_factory=dict)

    def place(self, target: str) -> DeletePlace:
        """Return where deletes of one of the files lie."""
        return DeletePlace(self.merges[target].spec_id, self.merges[target].partition)


def moved_deletes(table: Table, request: CommitRequest, gone: frozenset[str], storage: Storage) -> MovedDeletes:
    """Return the round's deletes of files that are gone, as those of the files that these were merged into.

    Raises:
        FencedError: a file was not merged by Lakeward, or it is not known any more how: the round must be enumerated
            again.
        StorageError: the storage refused.
    """
    waiting: dict[str, list[Codes]] = defaultdict(list)
    pins: set[int | None] = set()
    for file in request.files:
        detail = unpack_detail(file.detail)
        if detail.references in gone:
            named = delete_file_of(file, detail)
            waiting[detail.references].append(read_positions(storage, (named,), detail.references))
            pins.add(detail.base_snapshot)
    merges: dict[str, Merge] = {}
    for merge in _merges_since(table, pins):
        for source in merge.sources:
            if (some := waiting.pop(source.path, None)) is not None:
                for path, positions in merge.moved(source, union(some)):
                    waiting[path].append(positions)
                    merges[path] = merge
    lost = waiting.keys() - live_paths(table)
    if lost:
        message = (
            f"{request.path}: {len(lost)} data files that the round deletes rows of are gone, such as {min(lost)} "
            f"(somebody compacted the table); enumerate the round afresh"
        )
        raise FencedError(message)
    return MovedDeletes(waiting, merges)


def merged_deletes(table: Table, request: CommitRequest) -> frozenset[str]:
    """Return files of position deletes that upkeep has merged into others since the round was pinned."""
    pins = {unpack_detail(file.detail).base_snapshot for file in request.files if file.kind == "deletes"}
    return frozenset(path for merge in _merges_since(table, pins) for path in merge.deletes)


def write_moved(table: Table, storage: Storage, ids: CommitIds, moved: MovedDeletes) -> list[LakeFile]:
    """Write position deletes of rows of merged files, one delete file each.

    Raises:
        StorageError: the storage refused.
    """
    written = []
    for number, (target, some) in enumerate(sorted(moved.positions.items()), start=1):
        path = table.location_provider().new_metadata_location(f"{ids.uuid}-moved-{number}-deletes.parquet")
        deleted, codec, place = union(some), moved.merges[target].compression, moved.place(target)
        written.append(write_positions(storage, target, path, deleted, compression=codec, place=place))
    return written


def live_paths(table: Table) -> frozenset[str]:
    """Return the paths of all data files of the table's head."""
    manifests = manifests_in(table.metadata.current_snapshot(), table.io)
    return frozenset(entry.data_file.file_path for entry in live_entries(manifests, table.io, ManifestContent.DATA))


def _merges_since(table: Table, pins: set[int | None]) -> Iterator[Merge]:
    """Yield what compactions have merged since the oldest of some snapshots, the oldest first."""
    history = Ancestry.of(table.metadata).snapshots
    waited = set(pins)

    def is_later(snapshot_id: int) -> bool:
        waited.discard(snapshot_id)
        return bool(waited)

    later = takewhile(lambda one: is_later(one.snapshot_id), history)
    named = [summary_of(one).get(MOVES_FILE) for one in later]
    for path in reversed([one for one in named if one is not None]):
        try:
            yield from unpack_moves(read_bytes(table.io, path))
        except CorruptFileError:
            continue  # somebody has deleted it: what it has merged is lost, unless nothing of it is needed
