"""Committing a round: prepare at the source, one atomic commit to the lake, complete at the source. Blocking.

Every step is idempotent or asked back first. A conflict and an unknown outcome are both settled by searching for our
own commit in the lake (exactly-once.md; iceberg.md, "Fencing a commit").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from lakeward.errors import CommitConflictError, FencedError, LakeError, OutcomeUnknownError
from lakeward.model.results import CommitIds, CommitOutcome, CommitRequest, LakeFile
from lakeward.model.tables import TableBucket, TablePath, TableSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.ports import Clock, Lake, Source

_TRIES = 8
"""Commits built anew after a lost race; each loses only to a commit that landed."""
_log = structlog.get_logger("lakeward.committer")


@dataclass(frozen=True, slots=True)
class CommitWork:
    """What is to be committed. `journal` writes the commit's ids down before anything is sent."""

    round_id: RoundId
    step: int
    """1 for the first commit of a round; more come with commits within a round."""
    base_commit: int | None
    """The newest offset-carrying commit that this one is based on."""
    incarnation: Incarnation
    table: TableSpec
    files: tuple[LakeFile, ...]
    offsets: Mapping[TableBucket, int]
    journal: Callable[[CommitIds], None]
    may_commit: Callable[[], None]
    """Raises FencedError where the table is no longer ours or the heartbeat no longer fresh.

    Asked before each try, and once more right before it is sent: writing the journal may have taken long.
    """


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What came of it. Seconds by phase: commit (lake) and source."""

    snapshot_id: int
    timings_s: dict[str, float]


class Committer:
    """Commits rounds; safe to use from several threads, one per table."""

    def __init__(self, source: Source, lake: Lake, clock: Clock) -> None:
        """Keep the two sides."""
        self._source = source
        self._lake = lake
        self._clock = clock

    def commit(self, work: CommitWork) -> CommitResult:
        """Commit a round.

        Args:
            work: what to commit.

        Returns:
            The lake's snapshot id.

        Raises:
            FencedError: the stamp or the base commit is another one now.
            LakeError: the lake refused; nothing landed.
            OutcomeUnknownError: it may have landed, and asking back failed too.
        """
        table = work.table
        started = self._clock.now()
        prepared = self._source.prepare(table, work.offsets)
        between = self._clock.now()
        snapshot_id = self._to_lake(work, prepared)
        landed = self._clock.now()
        self._source.commit(table, snapshot_id, prepared, work.offsets)
        ended = self._clock.now()
        return CommitResult(snapshot_id, {"commit": landed - between, "source": between - started + ended - landed})

    def _to_lake(self, work: CommitWork, prepared: str) -> int:
        """Send until it is settled.

        After an unknown outcome the commit is simply built anew: should the first one still land, the second one
        finds another base commit or loses the compare-and-swap, and our own commit is found; should the second one
        land, the first one's assertion on the head fails. Its leftovers stay until then (see `Cleaner`).
        """
        path = work.table.path
        unknown: OutcomeUnknownError | None = None
        for _ in range(_TRIES):
            work.may_commit()
            ids = self._lake.new_ids()
            work.journal(ids)
            work.may_commit()
            outcome: CommitOutcome | None = None
            try:
                outcome = self._lake.commit(self._request(work, ids, prepared))
            except OutcomeUnknownError as error:
                _log.warning("outcome of a lake commit unknown, asking back", table=str(path), reason=str(error))
                unknown = error
            except FencedError:
                if (found := self._find(work)) is None:
                    raise
                return found
            else:
                if outcome is CommitOutcome.LANDED:
                    return ids.snapshot_id
            if (found := self._find(work)) is not None:
                return found
            if outcome is CommitOutcome.CONFLICT:
                self._drop_leftovers(path, ids)
        if unknown is not None:
            message = f"table {path}: the lake commit of round {work.round_id} may still land: {unknown}"
            raise OutcomeUnknownError(message) from unknown
        message = f"table {path}: lost the race to commit {_TRIES} times in a row"
        raise CommitConflictError(message)

    def _drop_leftovers(self, path: TablePath, ids: CommitIds) -> None:
        """Delete what a lost commit wrote. A look at what the table names costs little beside a wrong word: lost."""
        written = self._lake.commit_leftovers(path, ids)
        self._lake.delete(frozenset(written) - self._lake.referenced(path, written))

    def _find(self, work: CommitWork) -> int | None:
        path = work.table.path
        try:
            return self._lake.find(path, work.round_id, work.step)
        except LakeError as error:
            message = f"table {path}: the lake commit of round {work.round_id} may have landed, cannot look: {error}"
            raise OutcomeUnknownError(message) from error

    def _request(self, work: CommitWork, ids: CommitIds, prepared: str) -> CommitRequest:
        table = work.table
        return CommitRequest(
            path=table.path,
            table_id=table.table_id,
            incarnation=work.incarnation,
            round_id=work.round_id,
            step=work.step,
            ids=ids,
            base_commit=work.base_commit,
            files=work.files,
            offsets=work.offsets,
            source_path=prepared or None,
        )
