"""Commits a round: prepare at the source, one atomic commit to the lake, register it at the source. Blocking.

Every step is idempotent, or its outcome is looked up first. After a conflict or an unknown outcome the committer
searches the lake for its own commit (exactly-once.md; iceberg.md, "Fencing a commit").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from lakeward.errors import CommitConflictError, FencedError, LakeError, OutcomeUnknownError
from lakeward.model.backoff import NO_PAUSES
from lakeward.model.results import CommitIds, CommitOutcome, CommitRequest, LakeFile
from lakeward.model.tables import TableBucket, TablePath, TableSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.backoff import RetryPauses
    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.ports import Clock, Lake, Source

TRIES = 8
"""How often a commit is built, and how many calls of it may fail, before its round has failed.

Each conflict means that another commit landed.
"""
_LOOK_S = 0.25
"""Seconds between two looks whether a pause is to end early."""
_log = structlog.get_logger("lakeward.committer")


def _no_hurry() -> bool:
    return False


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class CommitWork:
    """What to commit. `journal` records the commit's ids before anything is sent."""

    round_id: RoundId
    step: int
    """1 for the first commit of a round; above 1 only with `commit_every`."""
    base_commit: int | None
    """The newest commit with offsets that this one is based on."""
    incarnation: Incarnation
    table: TableSpec
    files: tuple[LakeFile, ...]
    offsets: Mapping[TableBucket, int]
    journal: Callable[[CommitIds], None]
    may_commit: Callable[[], None]
    """Raises FencedError if the table is no longer assigned to this service, or was not renewed in time.

    Called before each try, and again right before it is sent: writing the journal may have taken long.
    """
    hurry: Callable[[], bool] = _no_hurry
    """Whether pauses are left out now: somebody waits for the service to end."""
    registered: bool = True
    """Whether the source is told of the commit; it knows nothing of a mirrored table."""
    complete_ms: int | None = None
    """As of `CommitRequest`."""
    landed: Callable[[], None] = _nothing
    """Called once the lake has the commit, before the source is told."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a commit. `timings_s` has the seconds of the phases commit (lake) and source.

    `parts_s` has the start and the end of each part, in order, in seconds on the service's clock.
    """

    snapshot_id: int
    timings_s: dict[str, float]
    parts_s: dict[str, tuple[float, float]]


class _Patience:
    """What is left of our patience with a lake that does not answer one commit, or the search for it."""

    def __init__(self, pauses: RetryPauses, clock: Clock, hurry: Callable[[], bool]) -> None:
        self._pauses = pauses
        self._clock = clock
        self._hurry = hurry
        self._failures = 0

    def wait(self) -> bool:
        """Wait before the lake is called again; False, at once, if it is not to be called again."""
        self._failures += 1
        if self._failures >= TRIES:
            return False
        until = self._clock.now() + self._pauses.after(self._failures)
        while (left_s := until - self._clock.now()) > 0 and not self._hurry():
            self._clock.sleep(min(left_s, _LOOK_S))
        return True


class Committer:
    """Commits rounds; safe to use from several threads, one per table."""

    def __init__(self, source: Source, lake: Lake, clock: Clock, pauses: RetryPauses = NO_PAUSES) -> None:
        """Keep the collaborators; `pauses` are those before a lake that did not answer is called again."""
        self._source = source
        self._lake = lake
        self._clock = clock
        self._pauses = pauses

    def commit(self, work: CommitWork) -> CommitResult:
        """Commit a round.

        Raises:
            FencedError: the stamp or the base commit is another one now.
            LakeError: the lake refused; nothing landed.
            OutcomeUnknownError: it may have landed; the lake did not answer often enough to tell.
        """
        table = work.table
        started = self._clock.now()
        prepared = self._source.prepare(table, work.offsets) if work.registered else ""
        between = self._clock.now()
        snapshot_id = self._to_lake(work, prepared)
        work.landed()
        landed = self._clock.now()
        if work.registered:
            self._source.commit(table, snapshot_id, prepared, work.offsets)
        ended = self._clock.now()
        timings = {"commit": landed - between, "source": between - started + ended - landed}
        parts = {"prepare": (started, between), "commit to the lake": (between, landed), "register": (landed, ended)}
        return CommitResult(snapshot_id, timings, parts)

    def _to_lake(self, work: CommitWork, prepared: str) -> int:
        """Send the commit until its outcome is known.

        After an unknown outcome the commit is built again. If the first one still lands, the second one finds another
        base commit or loses the compare-and-swap, and the first one is found. If the second one lands, the first one's
        assertion on the head fails. The first one's files stay until then (see `Cleaner`).
        """
        path, patience = work.table.path, _Patience(self._pauses, self._clock, work.hurry)
        unknown: OutcomeUnknownError | None = None
        for _ in range(TRIES):
            ids, outcome = self._send(work, prepared)
            if outcome is CommitOutcome.LANDED:
                return ids.snapshot_id
            if (found := self._find(work, patience)) is not None:
                return found
            if isinstance(outcome, FencedError):
                raise outcome
            if outcome is CommitOutcome.CONFLICT:
                self._drop_leftovers(work.table.in_lake.path, ids)
                continue
            unknown = outcome
            if not patience.wait():
                break
        if unknown is not None:
            message = f"table {path}: the lake commit of round {work.round_id} may still land: {unknown}"
            raise OutcomeUnknownError(message) from unknown
        message = f"table {path}: lost the race to commit {TRIES} times in a row"
        raise CommitConflictError(message)

    def _send(
        self, work: CommitWork, prepared: str
    ) -> tuple[CommitIds, CommitOutcome | FencedError | OutcomeUnknownError]:
        """Send the commit once, its ids in the journal; an error that it may be to blame for itself is returned."""
        work.may_commit()
        ids = self._lake.new_ids(work.table.in_lake.path)
        work.journal(ids)
        work.may_commit()
        try:
            return ids, self._lake.commit(self._request(work, ids, prepared))
        except OutcomeUnknownError as error:
            _log.warning("outcome of a lake commit unknown, asking back", table=str(work.table.path), reason=str(error))
            return ids, error
        except FencedError as error:
            return ids, error

    def _drop_leftovers(self, path: TablePath, ids: CommitIds) -> None:
        """Delete the files of a failed try, but not those that the table references: the commit may have landed."""
        written = self._lake.commit_leftovers(path, ids)
        self._lake.delete(frozenset(written) - self._lake.referenced(path, written))

    def _find(self, work: CommitWork, patience: _Patience) -> int | None:
        """Look for the commit until the lake answers. Before, nothing is sent again and no file deleted."""
        path, in_lake = work.table.path, work.table.in_lake.path
        while True:
            try:
                return self._lake.find(in_lake, work.round_id, work.step)
            except (LakeError, OutcomeUnknownError) as error:
                if not patience.wait():
                    what = f"the lake commit of round {work.round_id} may have landed, cannot look"
                    message = f"table {path}: {what}: {error}"
                    raise OutcomeUnknownError(message) from error
                _log.warning("the lake cannot be asked for a commit, asking again", table=str(path), reason=str(error))

    def _request(self, work: CommitWork, ids: CommitIds, prepared: str) -> CommitRequest:
        table = work.table
        return CommitRequest(
            path=table.in_lake.path,
            table_id=table.table_id,
            incarnation=work.incarnation,
            round_id=work.round_id,
            step=work.step,
            ids=ids,
            base_commit=work.base_commit,
            files=work.files,
            offsets=work.offsets,
            source_path=prepared or None,
            complete_ms=work.complete_ms,
        )
