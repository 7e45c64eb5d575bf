"""Round journals: `<root>/<service>/<incarnation>/<table id>-<epoch>-<number>/journal`.

A journal is written before a round's job starts, and again before each commit is sent, with the ids of that commit. So
a later round or start finds every file that the round may have left.
"""

from __future__ import annotations

import msgspec

from lakeward.errors import CorruptFileError, UsageError
from lakeward.model.dead_letters import path_of
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.results import CommitIds, LakeFile
from lakeward.model.tables import TablePath
from lakeward.storage.records import pack, unpack
from lakeward.storage.small_files import SmallFiles

FILE = "journal"
_VERSION = 1
_OF_ANOTHER_NAME = 2
VERSIONS = {_VERSION: 1, _OF_ANOTHER_NAME: 1}
"""The number of parts of each version that this release reads."""


class PendingLetters(msgspec.Struct, frozen=True, omit_defaults=True):
    """Dead letters that follow a commit of their table, whose `step` is that of the round, into a table of their own.

    `files` are as that table's lake has them, `offsets` those of the commit, as `stored_offsets` makes them. `commits`
    are uuid and snapshot id of each commit that was tried.
    """

    step: int
    files: tuple[LakeFile, ...]
    offsets: tuple[tuple[int | None, int, int], ...]
    commits: tuple[tuple[str, int], ...] = ()

    def with_try(self, ids: CommitIds) -> PendingLetters:
        """Return them with another commit that is about to be sent."""
        return msgspec.structs.replace(self, commits=(*self.commits, (ids.uuid, ids.snapshot_id)))


class RoundJournal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files that a round or a job of upkeep may have left.

    `commits` holds uuid and snapshot id of each commit that was tried.

    `incarnation`, `table_id`, `epoch` and `number` are those of its id. `base_snapshot` is the lake's head that the
    round started from, `base_commit` the newest commit with offsets then. `swept_ms`: when its files were deleted the
    first time, ms since 1970. `missing_ms`: when the lake table was first found missing after the source had dropped
    the table, ms since 1970.

    Of a job of upkeep, `base_snapshot` is the head that its newest commit was built on, None if none was sent that may
    still land, and `writes_for_ms` is for how long a task may write whose job has ended, or whose driver is gone.

    `lake_path` is the name of the lake table, None where it is `path`, that of the source's table: whatever becomes of
    the configuration, the files are that lake table's.

    `letters_prefix` is that of the round's dead letters, empty where it writes none; `letters` are those of its newest
    commit, until they have landed.

    Of a replay of dead letters, `letters_prefix` is that of their table, which is written anew, and `replayed` are the
    digests of those whose rows its commit has; they are taken out once that has landed.
    """

    incarnation: str
    table_id: int
    epoch: int
    number: int
    path: TablePath
    base_snapshot: int | None
    base_commit: int | None
    file_prefix: str
    commits: tuple[tuple[str, int], ...]
    swept_ms: int | None
    missing_ms: int | None = None
    writes_for_ms: int | None = None
    letters_prefix: str = ""
    letters: PendingLetters | None = None
    replayed: bytes = b""
    lake_path: TablePath | None = None

    @classmethod
    def begun(
        cls, round_id: RoundId, path: TablePath, base_snapshot: int | None, base_commit: int | None, file_prefix: str
    ) -> RoundJournal:
        """Return the journal of a round or a job of upkeep that has tried no commit."""
        whose = str(round_id.incarnation), round_id.table_id, round_id.epoch, round_id.number
        return cls(*whose, path, base_snapshot, base_commit, file_prefix, (), None)

    @property
    def in_lake(self) -> TablePath:
        """The name of the lake table."""
        return self.lake_path or self.path

    @property
    def round_id(self) -> RoundId:
        """Whose it is."""
        return RoundId(Incarnation.parse(self.incarnation), self.table_id, self.epoch, self.number)

    @property
    def of_letters(self) -> RoundJournal | None:
        """What the round may have left in the table of its dead letters; None where it writes none."""
        if not self.letters_prefix:
            return None
        path, prefix = path_of(self.in_lake), self.letters_prefix
        return msgspec.structs.replace(
            self,
            path=path,
            lake_path=None,
            file_prefix=prefix,
            commits=(),
            letters_prefix="",
            letters=None,
            replayed=b"",
        )


_JOURNALS = msgspec.msgpack.Decoder(RoundJournal)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


class JournalStore:
    """The journals of one service, the only one whose journals are listed. Blocking; thread-safe."""

    def __init__(self, files: SmallFiles, service: str) -> None:
        self._files = files
        self._service = service

    def write(self, journal: RoundJournal) -> None:
        """Write a journal durably, replacing the round's older one."""
        self._files.write(self._name(journal.round_id), encode(journal))

    def read(self, round_id: RoundId) -> RoundJournal | None:
        """Return a round's journal, None if there is none.

        Raises:
            CorruptFileError: it is damaged.
        """
        return self.read_named(round_id.incarnation, round_id.name)

    def read_named(self, incarnation: Incarnation, round_name: str) -> RoundJournal | None:
        """Return the journal of a round of any service of the same state root. Returns and raises as `read`."""
        name = f"{incarnation.service}/{incarnation}/{round_name}/{FILE}"
        data = self._files.read(name)
        return None if data is None else decode(data, self._files.path(name))

    def list(self) -> tuple[RoundJournal, ...]:
        """Return all journals of the service, of all its starts.

        Raises:
            CorruptFileError: one is damaged; names it.
        """
        found = []
        for name in self._files.names(self._service, FILE):
            data = self._files.read(name)
            if data is not None:
                found.append(decode(data, self._files.path(name)))
        return tuple(found)

    def delete(self, journal: RoundJournal) -> None:
        """Delete a round's journal; one that is not there is no error."""
        self._files.delete(self._name(journal.round_id))

    def _name(self, round_id: RoundId) -> str:
        return f"{round_id.incarnation.service}/{round_id.incarnation}/{round_id.name}/{FILE}"


def encode(journal: RoundJournal) -> bytes:
    """Encode a journal, in the oldest version that can hold it: an older release would ask the wrong lake table."""
    version = _VERSION if journal.lake_path is None else _OF_ANOTHER_NAME
    return pack(version, (msgspec.msgpack.encode(journal),))


def decode(data: bytes, file: str) -> RoundJournal:
    """Decode a journal.

    Raises:
        CorruptFileError: damaged, or of an unknown version; names the file.
    """
    _, (data,) = unpack(data, file, VERSIONS)
    try:
        journal = _JOURNALS.decode(data)
        Incarnation.parse(journal.incarnation)
    except (msgspec.MsgspecError, UsageError) as error:
        raise CorruptFileError(file, "a round's journal", str(error)) from error
    return journal
