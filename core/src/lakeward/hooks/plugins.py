"""What a source package and a lake package publish.

The entry point of group `lakeward.source` or `lakeward.lake` names an object of one of these shapes; its name there
is the `type` in the configuration. `options` is a subclass of `lakeward.model.options.Options`: its fields are the
keys of the TOML section, with their types, bounds, defaults and descriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.model.upkeep import UpkeepResult, UpkeepTask
    from lakeward.ports import Clock, Lake, LakeWriter, Partitioner, RowCheck, Source, SourceReader

SOURCE_GROUP = "lakeward.source"
LAKE_GROUP = "lakeward.lake"
LEASE_GROUP = "lakeward.lease"
WRAPPER_GROUP = "lakeward.lease_wrapper"
COMMAND_GROUP = "lakeward.command"
"""Its entry points name click commands; each is a command of `lakeward` under the entry point's name."""
OBSERVER_GROUP = "lakeward.observer"
"""Its entry points name what observes a running service; see `lakeward.observe.observers`."""


class SourcePlugin(Protocol):
    """A source, as a package publishes it."""

    options: type[Any]

    def open(self, options: Any, clock: Clock) -> Source:  # noqa: ANN401 - an instance of `self.options`
        """Open the source on the driver; `options` is an instance of this plugin's `options`.

        Raises:
            ConfigError: an option does not fit what is there.
            SourceError: it cannot be reached.
        """
        ...

    def reader(self, task: bytes, table: TableSpec) -> SourceReader:
        """Open the source in a subtask, from the bytes of `Source.reader_task`. Imports nothing heavy."""
        ...


class LakePlugin(Protocol):
    """A lake, as a package publishes it."""

    options: type[Any]

    def open(self, options: Any, clock: Clock) -> Lake:  # noqa: ANN401 - an instance of `self.options`
        """Open the lake on the driver; creates what is missing (warehouse directory, catalog).

        Raises:
            ConfigError: an option does not fit.
            StorageError: the warehouse cannot be written.
        """
        ...

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> LakeWriter:
        """Open a writer for one split in a subtask. Imports pyarrow and nothing heavier.

        Args:
            task: the bytes of `Lake.writer_task`.
            table: the source's table.
            split: what is written.
            attempt: the coordinator's number; it is part of each file's name.
            progress: what another writer had done of the split. The writer goes on from there: its rows start at
                the progress's position, keys in the progress's files are known to it, those files are among what
                it returns, and it neither writes to them nor reuses their names. They may lie under the prefix of
                another round.
        """
        ...


class PartitioningLakePlugin(LakePlugin, Protocol):
    """A lake whose tables can have a partitioning of their own (`lake_partition`)."""

    def partitioner(self, task: bytes, table: TableSpec) -> Partitioner:
        """Open what says which partition of the lake table a row is in. Imports pyarrow and nothing heavier.

        `task` has the bytes of `Lake.writer_task`, `table` its `lake_partition`. Without one it is the partition of the
        source's, and the bucket: only lakes that take late rows are asked (`lakeward.ports.LateRowsLake`).
        """
        ...

    def partition_writer(  # noqa: PLR0917 - as `writer`, for one partition instead of one split
        self,
        task: bytes,
        table: TableSpec,
        partition: bytes,
        name: str,
        attempt: int,
        before: tuple[LakeFile, ...],
        memory_bytes: int,
    ) -> LakeWriter:
        """Open a writer for the rows of one partition of the lake table (see `partitioner`), of any buckets.

        Rows come gathered: a batch has enough of them for a row group, or as many as there was memory for. Batches
        have a column `__bucket`. All rows of a key come to one writer at a time, in order. Imports pyarrow and nothing
        heavier.

        Args:
            task: the bytes of `Lake.writer_task`.
            table: the source's table.
            partition: the partition's key.
            name: a part of each file's name, unique among the writers of one attempt.
            attempt: the coordinator's number; it is part of each file's name too.
            before: files of this partition that this round has closed so far; as of `writer`'s progress.
            memory_bytes: about how many bytes of rows it may hold that are in no file yet.
        """
        ...


class CheckingLakePlugin(LakePlugin, Protocol):
    """A lake that can say which rows fit its tables (`on_bad_row`)."""

    def row_check(self, task: bytes, table: TableSpec, split: Split) -> RowCheck:
        """Open what checks the rows of one split in a subtask, before any writer takes them. Imports nothing heavy.

        `task` has the bytes of `Lake.writer_task`, `table` is the source's.
        """
        ...


class UpkeepLakePlugin(LakePlugin, Protocol):
    """A lake whose tables are looked after by jobs of their own, see `lakeward.ports.UpkeepLake`."""

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        """Do one task, in an executor, in memory that does not grow with the table. Imports nothing heavy.

        It writes files, and commits, deletes and renames nothing of others. `attempt` is Spark's number of this try; no
        two tries use one file name. `check` is called every few seconds: it raises once the task has to stop.

        Raises:
            LakewardError: it cannot be done, or has to stop. Files that it has begun are deleted first, if that can be.
        """
        ...
