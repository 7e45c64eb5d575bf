"""What Fluss servers answer when they refuse, as errors. Pure.

`server_error` and `check_code` choose the class from the code; whoever handles one refusal in particular catches its
class, everybody else `FlussServerError`. A refused call had no effect, save for UNKNOWN_SERVER_ERROR (-1): that is any
exception inside the server, and says nothing about what was done before it.
"""

from __future__ import annotations

from typing import ClassVar, Final

from lakeward.errors import (
    LeaseApiMissingError,
    NewerSourceError,
    OutcomeUnknownError,
    SourceError,
    TableGoneError,
)
from lakeward_source_fluss.wire.apis import API_VERSION, LEASE_APIS, ApiKey
from lakeward_source_fluss.wire.codes import RETRIABLE, ErrorCode


class FlussServerError(SourceError):
    """A server refused a call, or its part for one table or bucket.

    Attributes:
        server_code: the server's number, also one that is unknown here.
        server_name: the code's name.
        server_message: the server's text, empty where it is the code's default text.
        retriable: whether the same call may succeed later, perhaps at another server.
    """

    hint: ClassVar[str] = ""
    """What is to be done about it."""

    def __init__(self, what: str, server_code: int, server_message: str | None = None, server: str = "") -> None:
        """Say what was refused: the call, and the table or bucket where it was only that part.

        Code and message are those in the answer. `server` is what is known of the server's release, in words; named
        where it matters.
        """
        self.server_code = server_code
        self.server_name = _name(server_code)
        self.server_message = server_message or ""
        self.retriable = server_code in RETRIABLE
        text = f"{what}: the server answered {self.server_name} ({server_code})"
        text = f"{text}: {server_message.strip()}" if server_message else text
        text = f"{text}; {self.hint}" if self.hint else text
        super().__init__(f"{text}; the server is {server}" if server and isinstance(self, NewerSourceError) else text)


class UnknownCodeError(FlussServerError, NewerSourceError):
    """The server answered a code that is not known here: what it refused, and whether it passes, cannot be told."""

    code = NewerSourceError.code
    hint = f"this release knows the codes up to {max(ErrorCode)}: upgrade Lakeward"
    tries = 4  # it may be one that passes


class VersionRefusedError(FlussServerError, NewerSourceError):
    """The server wants the call in a newer version, be it for this table alone (row TTL, another encoding of keys)."""

    code = NewerSourceError.code
    hint = f"this release speaks version {API_VERSION} of every call: upgrade Lakeward, or leave the table out"


class TableMissingError(FlussServerError, TableGoneError):
    """There is no such table or database."""

    code = TableGoneError.code


class PartitionMissingError(FlussServerError):
    """There is no such partition (any more)."""


class StaleMetadataError(FlussServerError):
    """The wrong server was asked, or the bucket has no leader now: refresh the metadata and ask again."""


class UnknownBucketError(StaleMetadataError):
    """The server knows no such bucket: the table is new, its leader moved, or it was dropped."""


class BucketCountError(StaleMetadataError):
    """The request's bucket count is not the partition's: refresh the metadata and make the request anew."""


class NotCoordinatorLeaderError(StaleMetadataError):
    """This coordinator is not (yet, any more) the leader; it did nothing."""


class OffsetOutOfRangeError(FlussServerError):
    """The offset is below what the log still has, or above its end."""


class SnapshotMissingError(FlussServerError):
    """The KV snapshot cannot be found; the server says so for its own passing failures too, so ask again."""


class LakeSnapshotMissingError(FlussServerError):
    """The server has no lake snapshot on record for the table."""


class EpochFencedError(FlussServerError):
    """The tiering or coordinator epoch is not the current one: the table was handed to somebody else."""


class ProjectionError(FlussServerError):
    """Columns were projected that some batch's schema does not have, or not in ascending order."""


class ScannerGoneError(FlussServerError):
    """The scan has expired or was opened at another server; start over."""


class TooManyScannersError(FlussServerError):
    """The bucket, or its server, has as many open scans as it may; they close, or expire after `kv.scanner.ttl`."""


class AuthenticationError(FlussServerError):
    """The server did not accept who we are, or wants to know."""


class AuthorizationError(FlussServerError):
    """The user may not do that."""

    def needing(self, right: str, table: object) -> AuthorizationError:
        """Return this error with the missing right (as the server's authorizer names it) and the table in its text."""
        missing = AuthorizationError("", self.server_code, self.server_message)
        missing.args = (f"{self}; expected {right} on table {table}, found it missing: grant it to this user",)
        return missing


class UnsupportedApiError(SourceError):
    """The server is too old for an API, or is of another type; nothing was sent."""

    def __init__(self, api: ApiKey, server: str, versions: tuple[int, int] | None = None) -> None:
        """Name the API, the server that does not offer it, and the oldest and newest version that it offers instead."""
        self.api = api
        what = f"{api.name} ({api.value}): server {server}"
        if versions is None:
            super().__init__(f"{what} does not offer it")
        else:
            offered = f"expected version {API_VERSION} among those that it offers, found {versions[0]} to {versions[1]}"
            super().__init__(f"{what}: {offered}; upgrade Lakeward")


class LeaseApiUnsupportedError(UnsupportedApiError, LeaseApiMissingError):
    """The coordinator has no leases: it is older than 0.9."""

    code = LeaseApiMissingError.code


class ServerUnreachableError(SourceError):
    """No connection to a server; nothing was sent."""

    retriable = True


class TlsError(SourceError):
    """Client and server do not agree on TLS, or the certificate is not to be trusted; nothing was sent."""


class ClientClosedError(SourceError):
    """The client was closed; nothing was sent."""


class UnansweredReadError(SourceError):
    """No answer to a call that changes nothing; it may be repeated."""

    retriable = True


class UnansweredChangeError(OutcomeUnknownError):
    """No answer to a call that changes something; read back before doing it again."""


_KNOWN: Final = frozenset(int(code) for code in ErrorCode)
_BY_CODE: Final[dict[int, type[FlussServerError]]] = {
    ErrorCode.UNSUPPORTED_VERSION: VersionRefusedError,
    ErrorCode.DATABASE_NOT_EXIST: TableMissingError,
    ErrorCode.TABLE_NOT_EXIST: TableMissingError,
    ErrorCode.PARTITION_NOT_EXISTS: PartitionMissingError,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: StaleMetadataError,
    ErrorCode.LEADER_NOT_AVAILABLE: StaleMetadataError,
    ErrorCode.FENCED_LEADER_EPOCH: StaleMetadataError,
    ErrorCode.UNKNOWN_TABLE_OR_BUCKET: UnknownBucketError,
    # The server may not have heard of a partition that is new.
    ErrorCode.TABLET_METADATA_NOT_READY: StaleMetadataError,
    ErrorCode.STALE_METADATA: BucketCountError,
    ErrorCode.NOT_COORDINATOR_LEADER: NotCoordinatorLeaderError,
    ErrorCode.LOG_OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    ErrorCode.KV_SNAPSHOT_NOT_EXIST: SnapshotMissingError,
    ErrorCode.LAKE_SNAPSHOT_NOT_EXIST: LakeSnapshotMissingError,
    ErrorCode.INVALID_COORDINATOR: EpochFencedError,
    ErrorCode.FENCED_TIERING_EPOCH: EpochFencedError,
    ErrorCode.INVALID_COLUMN_PROJECTION: ProjectionError,
    ErrorCode.SCANNER_EXPIRED: ScannerGoneError,
    ErrorCode.UNKNOWN_SCANNER_ID: ScannerGoneError,
    ErrorCode.TOO_MANY_SCANNERS: TooManyScannersError,
    ErrorCode.AUTHENTICATE: AuthenticationError,
    ErrorCode.RETRIABLE_AUTHENTICATE: AuthenticationError,
    ErrorCode.AUTHORIZATION: AuthorizationError,
}


def server_error(what: str, code: int, message: str | None = None, server: str = "") -> FlussServerError:
    """Return the error for a server's code, not 0; an `UnknownCodeError` for one that is not known here.

    The arguments are those of `FlussServerError`.
    """
    other = FlussServerError if code in _KNOWN else UnknownCodeError
    return _BY_CODE.get(code, other)(what, code, message, server)


def check_code(what: str, code: int | None, message: str | None = None, server: str = "") -> None:
    """Raise if a table's or bucket's part of an answer is an error; the codes None and 0 are success.

    The arguments are those of `FlussServerError`.

    Raises:
        FlussServerError: it is one.
    """
    if code is not None and code != ErrorCode.NONE:
        raise server_error(what, code, message, server)


def unsupported(api: ApiKey, server: str, versions: tuple[int, int] | None = None) -> UnsupportedApiError:
    """Return the error for an API that a server does not offer in the version spoken here.

    For leases it is a `LeaseApiMissingError` too. `versions` are the oldest and newest that it does offer, if any.
    """
    return (LeaseApiUnsupportedError if api in LEASE_APIS else UnsupportedApiError)(api, server, versions)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return "UNKNOWN_CODE"
