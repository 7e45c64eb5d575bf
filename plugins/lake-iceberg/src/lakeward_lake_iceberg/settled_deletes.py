"""What becomes of the deletes of a commit in a table with deletion vectors: each data file has one at the most.

A round's vector contains what its writer has found to be deleted. It goes into the table as it is where it contains all
that stands there by now; else a new one is written that does. The new ones of a commit share one file beside the
metadata, named after the commit: what a commit leaves that does not land is looked for there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestContent

from lakeward.errors import FencedError
from lakeward_lake_iceberg.detail import Vector, unpack_detail
from lakeward_lake_iceberg.entries import delete_file, live_entries, manifests_in, named_data_file
from lakeward_lake_iceberg.positions import DeletePlace, delete_file_of, read_positions, union, vector_file
from lakeward_lake_iceberg.puffin import write_vectors
from lakeward_lake_iceberg.records import stored_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from lakeward.model.results import CommitIds, CommitRequest, LakeFile
    from lakeward_lake_iceberg.detail import DeleteFile, FileDetail
    from lakeward_lake_iceberg.keys import Codes
    from lakeward_lake_iceberg.moved_deletes import MovedDeletes
    from lakeward_lake_iceberg.storage import Storage


@dataclass(slots=True)
class SettledDeletes:
    """`added` stand after the commit, `superseded` were written for it and do not, `removed` stood before.

    Of those, `required` have to be found in the table.
    """

    added: list[LakeFile] = field(default_factory=list)
    superseded: list[LakeFile] = field(default_factory=list)
    removed: set[DeleteFile] = field(default_factory=set)
    required: set[DeleteFile] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class NewVector:
    """A deletion vector that is to be written; positions are ascending, each once."""

    target: str
    positions: Codes
    place: DeletePlace


def write_new_vectors(table: Table, storage: Storage, ids: CommitIds, vectors: Collection[NewVector]) -> list[LakeFile]:
    """Write the vectors of a commit into one file beside the metadata; none where there are none.

    Raises:
        StorageError: the storage refused.
    """
    if not vectors:
        return []
    path = table.location_provider().new_metadata_location(f"{ids.uuid}-deletes.puffin")
    placed, size = write_vectors(storage, path, [(one.target, one.positions) for one in vectors])
    return [
        vector_file(one.target, vector, rows, size, one.place)
        for one, (vector, rows) in zip(vectors, placed, strict=True)
    ]


def settle_deletes(
    table: Table, request: CommitRequest, gone: frozenset[str], moved: MovedDeletes, storage: Storage
) -> SettledDeletes:
    """Decide which deletes of a round stand, and write those that have to be written anew.

    `gone` are data files that the round's deletes name and that are no more, `moved` says where their rows are now.

    Raises:
        FencedError: somebody has taken deletes away that the round's replace.
        StorageError: the storage refused.
    """
    settled = SettledDeletes()
    written: dict[str, list[_Written]] = defaultdict(list)
    for file in request.files:
        if file.kind == "deletes":
            one = _Written(file, unpack_detail(file.detail))
            if one.target in gone:
                settled.superseded.append(file)
            else:
                written[one.target].append(one)
    if not written and not moved.positions:
        return settled
    at_head = _HeadDeletes(table)
    new = []
    for target in sorted({*written, *moved.positions}):
        ours, there = written[target], at_head.of(target)
        _check_replaced(request, ours, there)
        settled.removed |= there
        complete = None if target in moved.positions else _containing_all(ours, there)
        settled.superseded += [one.file for one in ours if one is not complete]
        if complete is not None:
            settled.added.append(complete.file)
            continue
        place = ours[0].place if ours else moved.place(target)
        read = [*(one.name for one in ours), *there, *at_head.shared(place)]
        found = [read_positions(storage, read, target), *moved.positions.get(target, ())]
        new.append(NewVector(target, union(found), place))
    settled.added += write_new_vectors(table, storage, request.ids, new)
    return settled


@dataclass(frozen=True, slots=True)
class _Written:
    """A delete file of the round."""

    file: LakeFile
    detail: FileDetail

    @property
    def name(self) -> DeleteFile:
        return delete_file_of(self.file, self.detail)

    @property
    def target(self) -> str:
        return self.detail.references or ""

    @property
    def place(self) -> DeletePlace:
        return DeletePlace(self.detail.spec_id, self.detail.partition)


class _HeadDeletes:
    """The deletes of the table's head."""

    def __init__(self, table: Table) -> None:
        self._single: dict[str, set[DeleteFile]] = defaultdict(set)
        self._shared: dict[tuple[int, tuple[object, ...]], list[DeleteFile]] = defaultdict(list)
        manifests = manifests_in(table.metadata.current_snapshot(), table.io)
        for entry in live_entries(manifests, table.io, ManifestContent.DELETES):
            file = entry.data_file
            target = named_data_file(file)
            if target is not None:
                self._single[target].add(delete_file(file))
            elif not file.equality_ids:
                self._shared[file.spec_id, _partition(file)].append(delete_file(file))

    def of(self, target: str) -> set[DeleteFile]:
        """Return the deletes of one data file alone."""
        return self._single.get(target, set())

    def shared(self, place: DeletePlace) -> Iterable[DeleteFile]:
        """Return position deletes of several data files of a partition, which were there before the upgrade."""
        return self._shared.get((place.spec_id, place.partition), ())


def _partition(file: DataFile) -> tuple[object, ...]:
    return tuple(stored_value(file.partition[position]) for position in range(len(file.partition)))


def _check_replaced(request: CommitRequest, ours: Collection[_Written], there: Collection[DeleteFile]) -> None:
    """Refuse a round whose vectors replace some that are gone; one that stands instead contains them."""
    expected = {one for written in ours for one in written.detail.replaces} - {one.name for one in ours}
    if expected - set(there) and not any(isinstance(one, Vector) for one in there):
        message = f"{request.path}: deletes that the round replaces are gone; enumerate the round afresh"
        raise FencedError(message)


def _containing_all(ours: Collection[_Written], there: Collection[DeleteFile]) -> _Written | None:
    """Return the vector of the round that contains all others and all that stands; None where none does."""
    replaced: Mapping[DeleteFile, FileDetail] = {one.name: one.detail for one in ours}
    for one in ours:
        contained: set[DeleteFile] = {one.name}
        waiting: list[DeleteFile] = [one.name]
        while waiting:
            detail = replaced.get(waiting.pop())
            found = set(() if detail is None else detail.replaces) - contained
            contained |= found
            waiting += found
        if isinstance(one.name, Vector) and contained >= {*replaced, *there}:
            return one
    return None
