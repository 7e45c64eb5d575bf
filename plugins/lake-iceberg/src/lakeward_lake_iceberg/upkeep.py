"""Plans the compaction of a table as tasks, and builds what replaces files by those that its tasks have written."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs
from pyiceberg.transforms import IdentityTransform

from lakeward.errors import FencedError
from lakeward.model.upkeep import UpkeepPlan, UpkeepTask
from lakeward_lake_iceberg.compaction import Live, due_deletes, due_merges
from lakeward_lake_iceberg.entries import VECTORS_FROM, delete_file, first_row_id
from lakeward_lake_iceberg.head import Ancestry, newest_stamp
from lakeward_lake_iceberg.lineage import next_row_id
from lakeward_lake_iceberg.merge_task import (
    DeletesGroup,
    DeletesResult,
    DeletesTask,
    MergeResult,
    MergeTask,
    Source,
    pack_merge,
    unpack_merge,
    unpack_result,
)
from lakeward_lake_iceberg.moved_deletes import MovedDeletes, write_moved
from lakeward_lake_iceberg.moves import Merge, Moved, unpack_positions
from lakeward_lake_iceberg.offsets import TABLE_ID
from lakeward_lake_iceberg.pins import plain_task
from lakeward_lake_iceberg.policy import Policy, partition_of
from lakeward_lake_iceberg.positions import read_positions, union
from lakeward_lake_iceberg.row_ids import ROW_ID_COLUMNS, with_row_ids
from lakeward_lake_iceberg.settled_deletes import NewVector, write_new_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table import Table

    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.results import CommitIds, LakeFile
    from lakeward.model.tables import TablePath
    from lakeward.model.upkeep import UpkeepCommit
    from lakeward_lake_iceberg.detail import DeleteFile, Value
    from lakeward_lake_iceberg.keys import Codes
    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.policy import Partition
    from lakeward_lake_iceberg.storage import Storage
    from lakeward_lake_iceberg.task import WriterTask


@dataclass(slots=True)
class Replacement:
    """What a commit of upkeep changes. `sequences` has the data sequence numbers of the new data files, by path."""

    files: list[LakeFile] = field(default_factory=list)
    sequences: dict[str, int] = field(default_factory=dict)
    removed: set[DeleteFile] = field(default_factory=set)
    merges: list[Merge] = field(default_factory=list)


def check_owner(path: TablePath, table: Table, table_id: int, incarnation: Incarnation | None) -> None:
    """Check whose table it is, and whose stamp is on the head; None: anybody's may be.

    Raises:
        FencedError: one of them is another one now.
    """
    owner, stamp = table.metadata.properties.get(TABLE_ID), newest_stamp(Ancestry.of(table.metadata))
    expected = stamp if incarnation is None else incarnation
    if (owner, stamp) != (str(table_id), expected):
        message = (
            f"{path}: expected table id {table_id} with the stamp {expected} on the head, found {owner} with {stamp}"
        )
        raise FencedError(message, by="" if stamp is None else str(stamp))


class Planner:
    """Plans what is due in one table, as it was loaded."""

    def __init__(  # noqa: PLR0917 - what is looked at
        self, path: TablePath, table: Table, live: Live, options: IcebergOptions, storage: Storage, now_ms: int
    ) -> None:
        """Look at the times of all files; `live` are those of the table's head, `now_ms` is in ms since 1970."""
        self._path = path
        self._table = table
        self._options = options
        self._live = live
        self._policy = Policy(table, (*live.data.values(), *live.deletes), options, storage, now_ms)

    def plan(self, upkeep_id: RoundId, most: int, prefix: str, storage: Mapping[str, str]) -> UpkeepPlan | None:
        """Return what is due, one merge or the delete files of one partition a task; None where nothing is.

        Data files come first: their deletes go with them. Files are written below `prefix`.

        `storage` are the properties of the file system.
        """
        if self._keeps_row_ids and not ROW_ID_COLUMNS.isdisjoint(self._table.schema().column_names):
            return None  # rows cannot keep their ids in columns of these names
        writer = plain_task(self._path, self._table, prefix=prefix, options=self._options, storage=storage)
        if self._keeps_row_ids:
            writer = structs.replace(writer, schema=with_row_ids(writer.arrow_schema()).serialize().to_pybytes())
        due = due_merges(self._live, self._policy)
        merged = {path for paths in due for path in paths}
        deletes = due_deletes(self._live, self._policy, merged)
        tasks = [self._task(number, paths, writer) for number, paths in enumerate(due[:most])]
        for partition, groups in list(deletes.items())[: most - len(tasks)]:
            tasks.append(self._deletes_task(len(tasks), partition, groups, writer))
        return UpkeepPlan(self._path, upkeep_id, "compaction", tuple(tasks)) if tasks else None

    def _deletes_task(
        self, number: int, partition: Partition, groups: list[DeletesGroup], writer: WriterTask
    ) -> UpkeepTask:
        spec_id, values = partition
        merge = DeletesTask(writer=structs.replace(writer, spec_id=spec_id), partition=values, groups=tuple(groups))
        sizes = {one.data_file.file_path: one.data_file.file_size_in_bytes for one in self._live.deletes}
        files = [path for group in groups for path in group.files]
        return UpkeepTask(number, len(files), sum(sizes[path] for path in files), pack_merge(merge))

    def _task(self, number: int, paths: list[str], writer: WriterTask) -> UpkeepTask:
        entries = [self._live.data[path] for path in paths]
        files = [entry.data_file for entry in entries]
        spec_id, partition = partition_of(files[0])
        deletes = {path: self._live.deletes_of(file) for path, file in zip(paths, files, strict=True)}
        read = {one.file_path: one for one in [*files, *(one for some in deletes.values() for one in some)]}
        merge = MergeTask(
            writer=structs.replace(writer, spec_id=spec_id),
            partition=partition,
            constants=self._constants(spec_id, partition),
            # Deletes that come later have a greater number, and equality deletes there are none of.
            sequence=max(entry.sequence_number or 0 for entry in entries),
            sources=tuple(
                Source(
                    entry.data_file.file_path,
                    tuple(map(delete_file, deletes[entry.data_file.file_path])),
                    first_row_id(entry.data_file),
                    entry.sequence_number or 0,
                )
                for entry in entries
            ),
            row_ids=self._keeps_row_ids,
        )
        size = sum(one.file_size_in_bytes for one in read.values())
        return UpkeepTask(number, len(read), size, pack_merge(merge))

    @property
    def _keeps_row_ids(self) -> bool:
        return next_row_id(self._table.metadata) is not None

    def _constants(self, spec_id: int, partition: tuple[Value, ...]) -> dict[int, Value]:
        fields = self._table.specs()[spec_id].fields
        pairs = zip(fields, partition, strict=True)
        return {one.source_id: value for one, value in pairs if isinstance(one.transform, IdentityTransform)}


class Replacing:
    """Builds what a commit changes, on a table as it is now."""

    def __init__(self, table: Table, storage: Storage) -> None:
        """Read the manifests."""
        self._table = table
        self._storage = storage
        self._live = Live.of(table)
        self._found = Replacement()
        self._late: dict[str, list[Codes]] = defaultdict(list)
        """Positions of rows that were deleted after they were merged, by new file."""
        self._merge_of: dict[str, Merge] = {}

    def build(self, commit: UpkeepCommit) -> Replacement | None:
        """Return the change; None where files are gone, or what others have committed is in the way.

        Raises:
            StorageError: deletes that have come meanwhile cannot be read, or written for the new files.
        """
        found = self._found
        void = 0
        for task, result in zip(commit.tasks, commit.results, strict=True):
            merge, done = unpack_merge(task.detail), unpack_result(result.detail)
            if isinstance(merge, DeletesTask):
                void += isinstance(done, DeletesResult) and not self._take_deletes(merge, done)
                continue
            if not isinstance(done, MergeResult) or not self._live.is_plain:
                return None
            if any(one.path not in self._live.data for one in merge.sources):
                return None
            firsts = accumulate(done.live, initial=0)
            moved = tuple(
                Moved(one.path, first, gone) for one, first, gone in zip(merge.sources, firsts, done.gone, strict=False)
            )
            files = tuple((file.path, file.rows) for file in done.files)
            told = Merge(merge.writer.spec_id, merge.partition, merge.writer.compression, moved, files)
            if not self._take_late_deletes(merge, told):
                return None
            found.merges.append(told)
            found.files += done.files
            found.sequences |= {file.path: merge.sequence for file in done.files}
            found.removed |= {one.path for one in merge.sources}
        if void == len(commit.tasks):
            return None
        found.removed |= self._useless_deletes()
        found.files += self._late_deletes(commit.ids)
        return found

    def _take_deletes(self, merge: DeletesTask, done: DeletesResult) -> bool:
        """Replace delete files, group by group; False where a round or somebody else has replaced some of each group.

        What is written for a data file that somebody has replaced is about nothing, and goes with the next compaction.
        """
        known = {entry.data_file.file_path for entry in self._live.deletes}
        kept = [
            (group, file) for group, file in zip(merge.groups, done.files, strict=True) if known.issuperset(group.files)
        ]
        if self._table.metadata.format_version >= VECTORS_FROM or not kept:
            return False
        replaced = tuple(path for group, _ in kept for path in group.files)
        self._found.files += [file for _, file in kept if file is not None]
        self._found.removed |= set(replaced)
        self._found.merges.append(Merge(merge.writer.spec_id, merge.partition, "", (), (), replaced))
        return True

    def _late_deletes(self, ids: CommitIds) -> list[LakeFile]:
        moved = MovedDeletes(self._late, self._merge_of)
        if self._table.metadata.format_version < VECTORS_FROM:
            return write_moved(self._table, self._storage, ids, moved)
        late = sorted(self._late.items())
        new = [NewVector(path, union(some), moved.place(path)) for path, some in late]
        return write_new_vectors(self._table, self._storage, ids, new)

    def _take_late_deletes(self, merge: MergeTask, told: Merge) -> bool:
        """Gather deletes of rows that were live when they were merged and are not any more.

        False where rows that were left out are live again: somebody has taken deletes away.
        """
        for source, moved in zip(merge.sources, told.sources, strict=True):
            now = tuple(delete_file(one) for one in self._live.deletes_of(self._live.data[source.path].data_file))
            if frozenset(now) == frozenset(source.deletes):
                continue
            positions = read_positions(self._storage, now, source.path)
            if len(np.setdiff1d(unpack_positions(moved.gone), positions, assume_unique=True)):
                return False
            for path, there in told.moved(moved, positions):
                self._late[path].append(there)
                self._merge_of[path] = told
        return True

    def _useless_deletes(self) -> set[DeleteFile]:
        """Return deletes that are about no data file once the merged ones are gone."""
        left = {path: entry for path, entry in self._live.data.items() if path not in self._found.removed}
        places = {partition_of(entry.data_file) for entry in left.values()}
        single = (file for target, files in self._live.single.items() if target not in left for file in files)
        shared = (file for place, files in self._live.shared.items() if place not in places for file in files)
        return {delete_file(file) for file in (*single, *shared)}
