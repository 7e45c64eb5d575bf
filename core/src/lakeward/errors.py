"""Every error of Lakeward: one root, and a stable code each.

The branches say what to do next. `UsageError` and `ConfigError`: the person at the keyboard. `TableError`: one
table cannot go on, the others can. `LeaseError`: the lease backend. `FencedError`: another service took over, stop
writing. `OutcomeUnknownError`: it may have happened; read back before you try again. Only `lakeward.cli` turns an
error into text and an exit code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNKNOWN = 3
_SHOWN_MOST = 120
"""Characters of a value that an error shows; a value may have megabytes."""


class LakewardError(Exception):
    """The root of all errors that Lakeward raises on purpose."""

    code = "LW-000"
    exit_code = EXIT_FAILED


def in_words(error: BaseException) -> str:
    """Return what an error says; of one that Lakeward did not raise on purpose also what it is."""
    return str(error) if isinstance(error, LakewardError) else f"{type(error).__name__}: {error}"


def code_of(error: BaseException) -> str:
    """Return the code of an error; that of the root where Lakeward did not raise it on purpose."""
    return error.code if isinstance(error, LakewardError) else LakewardError.code


def error_classes() -> list[type[LakewardError]]:
    """Return all error classes, ordered by code."""
    found = [one for one in globals().values() if isinstance(one, type) and issubclass(one, LakewardError)]
    return sorted(found, key=lambda kind: kind.code)


def meaning(kind: type[LakewardError]) -> str:
    """Return what an error means, and who must act: the first line of its docstring."""
    return (kind.__doc__ or "").splitlines()[0]


def meaning_of(code: str) -> str:
    """Return what errors of a code mean; empty for a code that no error has."""
    return next((meaning(kind) for kind in error_classes() if kind.code == code), "")


class UsageError(LakewardError):
    """The caller did something that is not allowed here; fix the call."""

    code = "LW-100"
    exit_code = EXIT_USAGE


class IllegalEventError(LakewardError):
    """A state machine got an event that its table has no row for; nothing was changed. This is a bug of Lakeward."""

    code = "LW-101"

    def __init__(self, machine: str, state: str, event: object) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        super().__init__(f"machine {machine!r} in state {state} has no row for {event!r}")


class ConfigError(LakewardError):
    """The configuration is wrong; the message names the key, what was expected and what was found."""

    code = "LW-200"
    exit_code = EXIT_USAGE

    def __init__(self, key: str, expected: str, found: object, hint: str = "") -> None:
        """Name the key: dotted, such as `lease.duration_s`, or the file's path.

        `expected` describes a right value. `hint` is an addition, for instance the nearest known name.
        """
        self.key = key
        self.expected = expected
        self.found = found
        self.hint = hint
        text = f"{key}: expected {expected}, found {found!r}"
        super().__init__(f"{text}. {hint}" if hint else text)


class MissingPluginError(ConfigError):
    """The configuration names a source, lake or lease backend that no installed package offers."""

    code = "LW-201"


class PluginError(LakewardError):
    """A plugin could not be loaded or breaks the contract; the message names the plugin."""

    code = "LW-202"


class JavaError(LakewardError):
    """No usable Java was found; the message says which one was and how to get another."""

    code = "LW-203"
    exit_code = EXIT_USAGE


class SparkError(LakewardError):
    """Spark could not start, or a Spark job failed."""

    code = "LW-210"


class SourceError(LakewardError):
    """The source refused the call or could not answer; it had no effect or may be repeated."""

    code = "LW-300"


class CorruptFileError(LakewardError):
    """A stored file is damaged; the message names the file, what was expected and what was found."""

    code = "LW-301"

    def __init__(self, file: str, expected: str, found: object) -> None:
        """Name the file; `expected` is what a whole file would have had there."""
        self.file = file
        self.expected = expected
        self.found = found
        super().__init__(f"{file}: expected {expected}, found {found!r}")


class NewerFormatError(CorruptFileError):
    """A newer release wrote this file, and nothing was changed; start that release again."""

    code = "LW-303"

    def __init__(self, file: str, known: Collection[int], found: int) -> None:
        """Name the file; `known` are the versions of its format that this release reads."""
        super().__init__(file, f"a format version among {sorted(known)}", found)
        hint = "A newer release of Lakeward wrote it. Nothing was changed: start that release again"
        self.args = (f"{self.args[0]}. {hint}, or move the folder away to begin without its unfinished rounds.",)


class StorageError(LakewardError):
    """A disk, directory or object store refused a write or read (full, read-only, no permission)."""

    code = "LW-302"


class ReadTimeoutError(SourceError):
    """The source gave no record of a split for `source.read_timeout_s`; the round is given up and tried again later."""

    code = "LW-304"


class LeaseApiMissingError(SourceError):
    """The source is too old to have the lease API."""

    code = "LW-310"


class TableError(LakewardError):
    """One table cannot be tiered as it is; the other tables are not touched.

    `permanent` says that trying again without a person's help is of no use: the table is suspended, after so many
    rounds in a row as `tries` says.
    """

    code = "LW-400"
    permanent = False
    tries = 1


class TableGoneError(TableError):
    """The table was dropped, or dropped and re-created, during a round."""

    code = "LW-401"


class LogTruncatedError(TableError):
    """Records that were never tiered have been cleaned from the source's log."""

    code = "LW-402"
    permanent = True


class SnapshotGoneError(TableError):
    """A KV snapshot was deleted before it was read; the table is enumerated again."""

    code = "LW-403"


class SchemaMismatchError(TableError):
    """The source's table and the lake's table do not fit together; the message says what differs."""

    code = "LW-404"
    permanent = True


class RolledBackError(TableError):
    """The lake table was rolled back behind our newest commit; a person must decide."""

    code = "LW-405"
    permanent = True


class RowError(TableError):
    """A row cannot be decoded, or does not fit the schema; the message names bucket, offset, column and value."""

    code = "LW-406"
    exit_code = EXIT_USAGE
    permanent = True
    column = ""
    """Of the value, empty where it is not known."""

    @classmethod
    def at(
        cls, table: object, bucket: object, offset: object, column: str, *, expected: str, found: object
    ) -> RowError:
        """Return the error of one value in a log or a snapshot.

        `offset` is the record's; for a row of a KV snapshot, a text that says which row. `expected` describes a right
        value; a long `found` is shortened.
        """
        where = f"table {table}, bucket {bucket}, offset {offset}, column {column!r}"
        error = cls(f"{where}: expected {expected}, found {short_repr(found)}")
        error.column = column
        return error


class LogGapError(TableError):
    """The source returned log records with an unexplained gap; nothing after the gap was read."""

    code = "LW-407"

    def __init__(self, where: str, expected: int, found: int) -> None:
        """Name table and bucket (`where`), the offset that had to follow, and the first that the source returned."""
        self.expected = expected
        self.found = found
        super().__init__(f"{where}: expected log records from offset {expected}, found them from offset {found}")


class RowCountError(TableError):
    """Rows were lost or doubled between the source and the lake's files; nothing of the round is committed."""

    code = "LW-408"
    permanent = True


class OffsetsBeyondLogError(TableError):
    """The lake has offsets beyond the end of the source's log: it was re-created or lost its newest records."""

    code = "LW-409"
    permanent = True
    tries = 4  # a server that has just become the leader may for a moment know less than the one before


class LakeTableGoneError(TableError):
    """The lake table with this service's commits is gone, or replaced by an empty one; restore it or accept that."""

    code = "LW-410"


class OffsetsWentBackError(TableError):
    """A late commit of another service set the table's offsets back behind ours; decide which offsets count."""

    code = "LW-411"


class RowsGoneError(TableError):
    """The source no longer has rows that `lakeward verify` needs; compare what it still has with `--available`."""

    code = "LW-412"
    exit_code = EXIT_UNKNOWN


class NewerSourceError(TableError):
    """The source uses a feature, format or code that this release does not know; upgrade, or leave the table out."""

    code = "LW-413"
    permanent = True
    server = ""
    """What is known of the source's release; empty where nothing is."""

    @classmethod
    def at(cls, where: str, expected: str, found: object) -> NewerSourceError:
        """Return the error of a value that is not known, in a table, a batch or a file; a long one is shortened."""
        return cls(f"{where}: expected {expected}, found {short_repr(found)}")

    def named(self, server: str) -> NewerSourceError:
        """Return this error with what is known of the source's release in its text, unless it is there."""
        if self.server or not server:
            return self
        named = NewerSourceError(f"{self}; the server is {server}")
        named.server = server
        return named


class NotReplayedError(TableError):
    """A dead letter stays: its record may be in the lake, or a newer version of its key; delete it, or leave it."""

    code = "LW-414"
    permanent = True


class LeaseError(LakewardError):
    """A lease backend failed; the message names the backend."""

    code = "LW-500"

    def __init__(self, backend: str, message: str) -> None:
        self.backend = backend
        super().__init__(f"lease backend {backend!r}: {message}")


class LakeError(LakewardError):
    """The lake refused a call; it had no effect."""

    code = "LW-600"


class CommitConflictError(LakeError):
    """Another commit came first, ours did not happen. It may be built again on the new head."""

    code = "LW-601"


class FencedError(LakeError):
    """Another incarnation took the table over; write nothing more to it.

    `by` is the incarnation found on the lake table's head (text), or the reason why the round may not commit.
    """

    code = "LW-602"

    def __init__(self, message: str, by: str = "") -> None:
        """Say what was expected and found; `by` is the incarnation that took over, empty where there is none."""
        self.by = by
        super().__init__(message)


class LakeAwayError(LakeError):
    """The lake's catalog does not answer; the call had no effect. Look at the catalog: every table waits for it."""

    code = "LW-603"


class ProtocolError(LakewardError):
    """A peer sent a message that the protocol does not allow."""

    code = "LW-700"


class ExchangeLostError(LakewardError):
    """A channel between two subtasks broke, or the other subtask was silent for too long; the launch is repeated."""

    code = "LW-701"


class OutcomeUnknownError(LakewardError):
    """The call may or may not have taken effect; read back before you try again."""

    code = "LW-900"
    exit_code = EXIT_UNKNOWN


def short_repr(value: object) -> str:
    """Return a value's text for a message, shortened in the middle where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MOST else f"{text[:_SHOWN_MOST]}... ({len(text)} characters)"
