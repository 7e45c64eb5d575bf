"""The older versions of keys: which files may hold them, and the deletes that were written of them.

These are the files that the round is pinned to, and those with the split's own rows from before and after an
interruption. All are searched in the same way, by their key columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakeward_lake_iceberg.base import KeyScan
from lakeward_lake_iceberg.detail import unpack_detail
from lakeward_lake_iceberg.partitioner import partition_key
from lakeward_lake_iceberg.positions import (
    DeletePlace,
    delete_file_of,
    read_positions,
    union,
    write_positions,
    write_vector,
)
from lakeward_lake_iceberg.task import BaseFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from lakeward.model.results import LakeFile
    from lakeward_lake_iceberg.detail import DeleteFile
    from lakeward_lake_iceberg.keys import Codes, KeyIndex
    from lakeward_lake_iceberg.partitioner import Place
    from lakeward_lake_iceberg.storage import Storage
    from lakeward_lake_iceberg.task import WriterTask

MERGED_DELETES = 4
"""With this many pinned delete files of one data file, the next one contains their positions and replaces them.

A deletion vector always does.
"""


class Deletes:
    """The deletes of one writer: position deletes, or deletion vectors."""

    def __init__(self, storage: Storage, task: WriterTask, place: Place, new_path: Callable[[str], str]) -> None:
        """Start with the pinned files of one lake partition, and those of older specs that its rows may lie in.

        `new_path` names a file, given how its name ends.
        """
        self._storage = storage
        self._task = task
        self._place = place
        self._new_path = new_path
        self._scan = KeyScan(storage, task)
        pinned = task.base_of(place.base)
        self._files = {file.path: file for file in pinned.files}
        self._shared = dict.fromkeys(self._files, pinned.shared_deletes)
        self._older = {one.file.path: one for one in task.older_files() if one.may_hold(place.partition)}
        for one in self._older.values():
            self._files[one.file.path] = one.file
            self._shared[one.file.path] = one.shared_deletes
        self._own: dict[str, tuple[DeleteFile, ...]] = {}
        self.closed: list[LakeFile] = []

    @property
    def knows_rows(self) -> bool:
        """True if any known file may contain an older version of a key."""
        return bool(self._files)

    def adopt(self, files: Collection[LakeFile]) -> None:
        """Add the split's files from before an interruption.

        If a step of the round has committed them and the round was pinned again since, they are known already.
        """
        for file in files:
            if file.kind == "data":
                self._files.setdefault(file.path, self._scan.describe(file))
        for file in files:
            if file.kind == "deletes":
                self._adopt_deletes(file)

    def add(self, files: Iterable[LakeFile]) -> None:
        """Know further data files of this split."""
        for file in files:
            self._files[file.path] = self._scan.describe(file)

    def search(self, index: KeyIndex) -> None:
        """Delete all versions of the given keys in known files.

        Raises:
            StorageError: a file cannot be read or written.
        """
        for file in list(self._files.values()):
            if self._scan.may_hold(file, index):
                self._delete_found(file, self._scan.positions(file.path, index))

    def delete(self, target: str, positions: Codes) -> None:
        """Delete rows of one data file that no earlier delete contains; positions are ascending, each once."""
        if self._task.vectors:
            self._delete_found(self._files.get(target, BaseFile(target, 0)), positions)
        else:
            self._write(target, positions)

    def abort(self, kept: frozenset[str]) -> None:
        """Delete the files that this writer wrote, except those that must be kept."""
        for file in self.closed:
            if file.path not in kept:
                self._storage.delete(file.path)

    def _adopt_deletes(self, file: LakeFile) -> None:
        detail = unpack_detail(file.detail)
        target = self._files.get(detail.references or "")
        named = delete_file_of(file, detail)
        if target is None or named in target.deletes:
            return
        if detail.replaces:
            kept = tuple(path for path in target.deletes if path not in detail.replaces)
            self._files[target.path] = BaseFile(target.path, target.rows, target.lower, target.upper, kept)
        self._own[target.path] = (*self._own.get(target.path, ()), named)

    def _delete_found(self, file: BaseFile, positions: Codes) -> None:
        """Delete only rows that still live: else the deletes of a hot key would grow with the square of its updates.

        A deletion vector contains all that is deleted of its data file, and so replaces what there is.
        """
        if not len(positions):
            return
        shared, own = self._shared.get(file.path, ()), self._own.get(file.path, ())
        known = read_positions(self._storage, (*file.deletes, *shared, *own), file.path)
        fresh = np.setdiff1d(positions, known, assume_unique=True)
        if not len(fresh):
            return
        if self._task.vectors:
            self._write(file.path, union((fresh, known)), replaces=(*file.deletes, *own))
        elif len(file.deletes) >= MERGED_DELETES:
            self._write(file.path, union((fresh, known)), replaces=file.deletes)
            self._files[file.path] = BaseFile(file.path, file.rows, file.lower, file.upper)
        else:
            self._write(file.path, fresh)

    def _write(self, target: str, positions: Codes, replaces: tuple[DeleteFile, ...] = ()) -> None:
        path = self._new_path("-deletes.puffin" if self._task.vectors else "-deletes.parquet")
        older = self._older.get(target)
        base = self._task.base_snapshot
        place = DeletePlace(self._task.spec_id, self._place.partition, base_snapshot=base)
        if older is not None:
            # A delete file lies in the partition of the data file that it is about.
            writer = (self._task.spec_id, partition_key(self._place.partition))
            place = DeletePlace(older.spec_id, older.partition, writer, base)
        if self._task.vectors:
            file = write_vector(self._storage, target, path, positions, place=place, replaces=replaces)
        else:
            codec = self._task.compression
            file = write_positions(
                self._storage, target, path, positions, compression=codec, place=place, replaces=replaces
            )
        self.closed.append(file)
        self._own[target] = (*self._own.get(target, ()), delete_file_of(file, unpack_detail(file.detail)))
