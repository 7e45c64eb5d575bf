"""What a source package and a lake package publish.

The entry point of group `lakeward.source` or `lakeward.lake` names an object of one of these shapes; its name there
is the `type` in the configuration. `options` is a subclass of `lakeward.model.options.Options`: its fields are the
keys of the TOML section, with their types, bounds, defaults and descriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, Lake, LakeWriter, Source, SourceReader

SOURCE_GROUP = "lakeward.source"
LAKE_GROUP = "lakeward.lake"
LEASE_GROUP = "lakeward.lease"
WRAPPER_GROUP = "lakeward.lease_wrapper"
COMMAND_GROUP = "lakeward.command"
"""Its entry points name click commands; each is a command of `lakeward` under the entry point's name."""


class SourcePlugin(Protocol):
    """A source, as a package publishes it."""

    options: type[Any]

    def open(self, options: Any, clock: Clock) -> Source:  # noqa: ANN401 - an instance of `self.options`
        """Open the source on the driver.

        Args:
            options: an instance of `options`.
            clock: the service's clock.

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
