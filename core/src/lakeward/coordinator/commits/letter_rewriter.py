"""Takes dead letters out of their lake table, and says anew why others stay: the table is written anew. Blocking.

Nothing is fenced by it: whoever adds letters meanwhile comes first, and they are read again with the rest.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import structlog

from lakeward.errors import CommitConflictError, LakeError, LakewardError, OutcomeUnknownError
from lakeward.model.batches import SourceBatch
from lakeward.model.dead_letters import Reason, as_source, digests, read_back
from lakeward.model.results import CommitOutcome, RewriteRequest
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TableBucket, TableSpec
from lakeward.ports import RewritableLake

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from lakeward.hooks.plugins import LakePlugin
    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.results import CommitIds, LakeFile, LakeHead
    from lakeward.model.tables import TablePath
    from lakeward.ports import Lake, LakeWriter

_TRIES = 10
"""How often the table is written anew because another snapshot came first."""
_log = structlog.get_logger("lakeward.deadletters")


class LetterChange(NamedTuple):
    """What becomes of letters, by their digests: those in `gone` are taken out, others get another reason."""

    gone: Collection[bytes]
    reasons: Mapping[bytes, Reason] = {}


class LetterRewriter:
    """Rewrites tables of dead letters."""

    def __init__(self, lake: Lake, plugin: Callable[[], LakePlugin]) -> None:
        """Keep the lake; `plugin` is called once something is written."""
        self._lake = lake
        self._plugin = plugin

    def rewritable(self, path: TablePath) -> RewritableLake:
        """Return the lake as one that can do this.

        Raises:
            LakeError: it cannot.
        """
        if not isinstance(self._lake, RewritableLake):
            message = f"{path}: dead letters cannot be taken out of lake {self._lake.name!r}: it offers no `rewrite`"
            raise LakeError(message)
        return self._lake

    def rewrite(
        self, path: TablePath, round_id: RoundId, change: LetterChange, stamp: Incarnation | None = None
    ) -> int:
        """Change the letters of a table of dead letters; return how many were taken out.

        Files lie under the prefix of `round_id`. With a `stamp`, that one has to be on the head: who holds a later one
        deletes what lies there. What was taken out before is not missed, so this may be done again.

        Raises:
            FencedError: another stamp is on the head.
            OutcomeUnknownError: it may have landed; do it again.
            LakewardError: lake or store refused, or others came first again and again; nothing was changed.
        """
        tried = _Tried(self._lake, path)
        try:
            gone = self._until_known(path, round_id, change, stamp, tried)
        except LakewardError:
            if not tried.may_land:
                tried.abort()
            raise
        tried.clean_up()
        return gone

    def _until_known(
        self, path: TablePath, round_id: RoundId, change: LetterChange, stamp: Incarnation | None, tried: _Tried
    ) -> int:
        lake, gone = self.rewritable(path), 0
        for _ in range(_TRIES):
            head = self._lake.head(path)
            if head is None or head.snapshot_id is None or head.table_id is None:
                return gone
            written = self._write(head, round_id, change, tried)
            if not written.changed:
                return gone
            gone, ids = written.gone, self._lake.new_ids(path)
            tried.ids.append(ids)
            request = RewriteRequest(path, head.table_id, ids, head.snapshot_id, written.files, stamp)
            try:
                outcome = lake.rewrite(request)
            except OutcomeUnknownError as error:
                # If it lands after all, the next one conflicts with it; the letters are taken out only once.
                _log.warning("outcome of a rewrite of dead letters unknown", table=str(path), reason=str(error))
                tried.may_land = error
                continue
            tried.may_land = None
            if outcome is CommitOutcome.LANDED:
                return gone
        if tried.may_land is not None:
            message = f"table {path}: its dead letters may still be rewritten: {tried.may_land}"
            raise OutcomeUnknownError(message) from tried.may_land
        message = f"table {path}: lost the race to rewrite its dead letters {_TRIES} times in a row"
        raise CommitConflictError(message)

    def _write(self, head: LakeHead, round_id: RoundId, change: LetterChange, tried: _Tried) -> _Written:
        writer: LakeWriter | None = None
        gone = changed = 0
        for rows in self.rewritable(head.path).read_rows(head.path, head.snapshot_id or 0):
            letters = read_back(rows)
            names = digests(letters)
            stays = np.array([name not in change.gone for name in names], dtype=np.bool_)
            said = {row: change.reasons[name] for row, name in enumerate(names) if name in change.reasons}
            gone += len(names) - int(stays.sum())
            told = _with_reasons(letters, said)
            changed += not told.equals(letters)
            kept = told.filter(pa.array(stays))
            if kept.num_rows:
                writer = writer or self._open(head, round_id, kept.schema, tried)
                writer.write(SourceBatch(as_source(kept), next_offset=0))
        files = () if writer is None else writer.close()
        tried.files += files
        return _Written(files, gone, bool(gone or changed))

    def _open(self, head: LakeHead, round_id: RoundId, schema: pa.Schema, tried: _Tried) -> LakeWriter:
        table = TableSpec(head.path, head.table_id or 0, 1, schema, (), (), (), 1, 0.0, system_columns=False)
        split = LogSplit(f"rewrite-{secrets.token_hex(8)}", TableBucket(table.table_id, None, 0), (), 0, 0)
        writer = self._plugin().writer(self._lake.writer_task(table, head, round_id), table, split, 0)
        tried.writers.append(writer)
        return writer


class _Written(NamedTuple):
    files: tuple[LakeFile, ...]
    gone: int
    changed: bool


class _Tried:
    """What tries have written."""

    def __init__(self, lake: Lake, path: TablePath) -> None:
        self._lake = lake
        self._path = path
        self.files: tuple[LakeFile, ...] = ()
        self.ids: list[CommitIds] = []
        self.writers: list[LakeWriter] = []
        self.may_land: OutcomeUnknownError | None = None
        """Why it is not known whether the newest try has landed, or will."""

    def abort(self) -> None:
        """Delete what was written; none of it can land."""
        for writer in self.writers:
            writer.abort()

    def clean_up(self) -> None:
        """Delete what no snapshot names, now that no try can land any more."""
        lake, path = self._lake, self._path
        found = [one.path for one in self.files]
        found += [file for ids in self.ids for file in lake.commit_leftovers(path, ids)]
        lake.delete(frozenset(found) - lake.referenced(path, found))


def _with_reasons(letters: pa.RecordBatch, said: Mapping[int, Reason]) -> pa.RecordBatch:
    """Return letters with other reasons, by number."""
    if not said:
        return letters
    columns = {name: letters.column(name) for name in letters.schema.names}
    for name in Reason._fields:
        values = columns[name].to_pylist()
        for row, reason in said.items():
            told = getattr(reason, name)
            values[row] = values[row] if told is None else told
        columns[name] = pa.array(values, letters.schema.field(name).type)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=letters.schema)
