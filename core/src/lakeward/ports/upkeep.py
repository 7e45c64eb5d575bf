"""The port of a lake whose tables need upkeep: planned in the driver, done by tasks of a job, committed in the driver.

A round never waits for the tasks. It may commit to the same table while they run. A job of upkeep has a journal as a
round has, and its files are listed and deleted as those of a round: by `Lake.file_prefix`, `list_prefix`,
`commit_leftovers`, `referenced` and `delete`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.model.identity import RoundId
    from lakeward.model.tables import TablePath
    from lakeward.model.upkeep import FileCounts, OrphanFile, UpkeepCommit, UpkeepOutcome, UpkeepPlan


@runtime_checkable
class UpkeepLake(Protocol):
    """What a lake may offer besides `Lake`: upkeep of its tables, as jobs of their own.

    The tasks of a plan are done by `lakeward.hooks.plugins.UpkeepLakePlugin.upkeep`, in executors. They write files
    under the prefix of the plan's id and nothing else. Called as `Lake` is: never twice at a time for one table.
    """

    def plan_upkeep(self, path: TablePath, upkeep_id: RoundId, most: int) -> UpkeepPlan | None:
        """Plan what is due, in at most `most` tasks (> 0); None where nothing is. Writes nothing.

        Each task replaces other files, and any number of them may be committed without the rest.

        Raises:
            LakeError: the lake could not be read.
        """
        ...

    def commit_upkeep(self, commit: UpkeepCommit) -> UpkeepOutcome:
        """Replace the files of the tasks by those of the results, in one snapshot on `base_snapshot`, sent once.

        Rows, offsets and stamp stay as they are. Other commits than that of the plan's head may have come between.

        Raises:
            FencedError: the stamp is not the incarnation of the id, or the table is another one now.
            OutcomeUnknownError: it may have landed, or may as long as the head is `base_snapshot`.
        """
        ...


@runtime_checkable
class CountedLake(Protocol):
    """A lake that counts what upkeep is about."""

    def count_files(self, path: TablePath) -> FileCounts:
        """Count the files of the table's head.

        Raises:
            LakeError: the lake could not be read.
        """
        ...


@runtime_checkable
class OrphanLake(Protocol):
    """A lake that finds files which nobody knows: what a commit of another engine has left that never landed."""

    def find_orphans(self, path: TablePath, kept: Collection[str], before_ms: int) -> tuple[OrphanFile, ...]:
        """Return the files in the folders of a table that were written before a time and that nothing names.

        No retained snapshot does, of whatever branch, and nothing in the metadata. Files with one of `kept` in their
        names stay in any case. `before_ms` is in ms since 1970; a younger file may be of a commit that is under way.

        Raises:
            LakeError: the table's folders may have files of others, or its files may not be deleted.
        """
        ...
