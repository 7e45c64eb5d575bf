"""Snapshots: the files `snapshot/snapshot-N`, which are numbered from 1 without a gap at their end."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from lakeward.errors import CorruptFileError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakeward_lake_paimon.storage import Folder, Storage

VERSION = 3
"""Of snapshot files, since Paimon 0.4."""
FIRST = 1
_NAME = re.compile(r"snapshot-(\d+)")
_TAG = re.compile(r"tag-.+")
_LATEST, _EARLIEST = "LATEST", "EARLIEST"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a snapshot file says. A base list names the manifests of the snapshot before, a delta list the new ones."""

    version: int
    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: str
    time_millis: int
    uuid: str | None = None
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    total_record_count: int | None = None
    delta_record_count: int | None = None
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: dict[str, str] | None = None
    next_row_id: int | None = None
    log_offsets: dict[str, Any] | None = None

    @property
    def said(self) -> Mapping[str, str]:
        """The properties; none where there are none."""
        return self.properties or {}

    @property
    def lists(self) -> tuple[str, ...]:
        """The names of its manifest lists."""
        lists = (self.base_manifest_list, self.delta_manifest_list, self.changelog_manifest_list)
        return tuple(one for one in lists if one)

    def to_bytes(self) -> bytes:
        """Return the snapshot file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)


_SNAPSHOTS = msgspec.json.Decoder(Snapshot)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def decode_snapshot(data: bytes, path: str) -> Snapshot:
    """Read a snapshot file.

    Raises:
        CorruptFileError: it is damaged, or of a version that is not known; names `path`.
    """
    try:
        found = _SNAPSHOTS.decode(data)
    except msgspec.DecodeError as damaged:
        raise CorruptFileError(path, "a snapshot of Paimon as JSON", str(damaged)) from damaged
    if found.version != VERSION:
        raise CorruptFileError(path, f"a snapshot of version {VERSION}", found.version)
    return found


class Snapshots:
    """The snapshots of one table."""

    def __init__(self, storage: Storage, location: str) -> None:
        """Read nothing yet; `location` is the table's folder."""
        self._storage = storage
        self._folder = f"{location}/snapshot"
        self._tags = f"{location}/tag"

    def path(self, number: int) -> str:
        """Return the path of a snapshot's file."""
        return f"{self._folder}/snapshot-{number}"

    def ids(self) -> tuple[int, ...]:
        """Return the ids of all snapshots that are there, ascending."""
        return _ids(self._storage.names(self._folder))

    def has_all(self, ids: Sequence[int]) -> bool:
        """Return whether snapshots that there were are all there still."""
        return set(ids) <= set(self.ids())

    def read(self, number: int) -> Snapshot | None:
        """Return a snapshot, None if it is not there.

        Raises:
            CorruptFileError: it cannot be read.
        """
        return self._read(self.path(number))

    def latest(self) -> Snapshot | None:
        """Return the head, None if the table has none."""
        ids = self.ids()
        return None if not ids else self.read(ids[-1])

    def chain(self) -> Chain:
        """Return the snapshots that are there now."""
        return Chain(self, self.ids())

    def tagged(self) -> Iterator[Snapshot]:
        """Yield the snapshots that tags keep."""
        for name in self._storage.names(self._tags):
            if _TAG.fullmatch(name) and (found := self._read(f"{self._tags}/{name}")) is not None:
                yield found

    def pin(self) -> Folder:
        """Open the folder of the snapshots to change it; see `create_snapshot`."""
        return self._storage.pin(self._folder)

    def _read(self, path: str) -> Snapshot | None:
        data = self._storage.read(path)
        return None if data is None else decode_snapshot(data, path)


class Chain:
    """The snapshots that a table had at one moment, from the head down.

    Each is read when it is come to: there may be many thousands, and in a store each costs a request. The head is read
    at once, as it says what the table is. One that is expired meanwhile is left out.
    """

    def __init__(self, snapshots: Snapshots, ids: Sequence[int]) -> None:
        """Read the head; `ids` ascend."""
        self._snapshots = snapshots
        self.ids = tuple(reversed(ids))
        self._read: dict[int, Snapshot | None] = {}
        if self.ids:
            self.get(self.ids[0])

    def __iter__(self) -> Iterator[Snapshot]:
        """Yield all, the newest first."""
        return self.above(0)

    def above(self, number: int) -> Iterator[Snapshot]:
        """Yield those of greater ids, the newest first."""
        for each in self.ids:
            if each <= number:
                return
            if (found := self.get(each)) is not None:
                yield found

    def get(self, number: int) -> Snapshot | None:
        """Return a snapshot, None if it was not there, or is gone."""
        if number not in self._read:
            self._read[number] = self._snapshots.read(number) if number in self._known else None
        return self._read[number]

    def is_expired(self, number: int) -> bool:
        """Return whether a snapshot is below all that are there, or was expired since they were listed."""
        return number < self.oldest_id or (number in self._known and self.get(number) is None)

    @property
    def has_its_head(self) -> bool:
        """Whether the newest could be read: if it was expired in between, the others say nothing of the table."""
        return not self.ids or self.get(self.ids[0]) is not None

    @cached_property
    def _known(self) -> frozenset[int]:
        return frozenset(self.ids)

    @property
    def oldest_id(self) -> int:
        """The least id, 0 where there is none."""
        return self.ids[-1] if self.ids else 0


def _ids(names: Iterable[str]) -> tuple[int, ...]:
    matches = (_NAME.fullmatch(name) for name in names)
    return tuple(sorted(int(found[1]) for found in matches if found))


def create_snapshot(folder: Folder, snapshot: Snapshot, tag: str) -> bool:
    """Make a snapshot the head; return False if another one of its number is there.

    Raises:
        StorageError: the disk refused, and nothing was created.
        OutcomeUnknownError: it cannot be told whether it was created.
    """
    return folder.create(f"snapshot-{snapshot.id}", snapshot.to_bytes(), tag)


def say_latest(folder: Folder, number: int) -> int:
    """Write the hints for a new snapshot; return the id of the newest one.

    Readers take a hint for the newest id if there is none after it: one that is too old leads them to what was expired.
    So none is put in the place of a newer one, and it is looked once more which one is the newest. One that cannot be
    written is written with the next snapshot.

    Raises:
        StorageError: the folder cannot be listed.
    """
    newest = number
    while True:
        with suppress(StorageError):
            if _said(folder, _LATEST) < newest:
                folder.replace(_LATEST, str(newest).encode())
            if newest == FIRST:
                say_earliest(folder, FIRST)
        known, newest = newest, max(_ids(folder.names()), default=newest)
        if newest <= known:
            return known


def say_earliest(folder: Folder, number: int) -> None:
    """Write the hint from which on readers look for snapshots; one that is greater stays."""
    if _said(folder, _EARLIEST) < number:
        folder.replace(_EARLIEST, str(number).encode())


def earliest_said(folder: Folder) -> int:
    """Return what the hint says from which on readers look for snapshots, 0 where there is none."""
    return _said(folder, _EARLIEST)


def _said(folder: Folder, hint: str) -> int:
    data = folder.read(hint)
    return int(data) if data is not None and data.isdigit() else 0


def delete_snapshot(folder: Folder, number: int) -> None:
    """Delete a snapshot's file."""
    folder.delete(f"snapshot-{number}")
