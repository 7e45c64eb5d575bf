"""A lake table as it was read at one moment: who owns it, its schema, its snapshots, the copy of its newest commit.

Beside Paimon's own folders a table has the folder `_lakeward`: `table.json` says which table of the source it belongs
to; `commit-N` is a copy of the newest commit of ours, which shows a table that was rolled back, and outlives an expiry
by another program; `stamp-INCARNATION` says in which snapshot a start took the table, and outlives one, too;
`offsets-*` are offsets that are too long for a snapshot.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import (
    CorruptFileError,
    FencedError,
    LakeAwayError,
    LakeError,
    LakewardError,
    OutcomeUnknownError,
    RolledBackError,
    TableGoneError,
)
from lakeward.model.column_ids import columns_by_id
from lakeward.model.identity import Incarnation
from lakeward.model.lake_offsets import OFFSETS_FILE
from lakeward.model.results import LakeHead
from lakeward_lake_paimon.columns import field_names, known_columns
from lakeward_lake_paimon.manifests import Manifests
from lakeward_lake_paimon.offsets import carries_offsets, incarnation_of, offset_commit, round_of
from lakeward_lake_paimon.snapshots import (
    Snapshots,
    decode_snapshot,
    delete_snapshot,
    earliest_said,
    say_latest,
)
from lakeward_lake_paimon.table_schema import newest_schema, schema_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.model.identity import RoundId
    from lakeward.model.results import OffsetCommit
    from lakeward.model.tables import TablePath
    from lakeward_lake_paimon.snapshots import Chain, Snapshot
    from lakeward_lake_paimon.storage import Folder, Storage
    from lakeward_lake_paimon.table_schema import TableSchema

OWN_FOLDER = "_lakeward"
_COPY = re.compile(r"commit-(\d+)")
_STAMP = re.compile(r"stamp-([^-]+-\d+-[0-9a-f]{16})")
_TRIES = 20


class Owner(msgspec.Struct, frozen=True):
    """`table.json`: the source's table that a lake table belongs to.

    `uuid` is the lake table's own. `opened_by` is the start that created or adopted it: it fences earlier starts until
    the table has a stamp. Snapshots up to `since` were there before: they carry nothing of ours.
    """

    version: int
    table_id: int
    uuid: str
    opened_by: str
    since: int = 0

    @property
    def opener(self) -> Incarnation:
        """The start that created or adopted the table."""
        return Incarnation.parse(self.opened_by)


_OWNERS = msgspec.json.Decoder(Owner)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def owner_path(location: str) -> str:
    """Return the path of a table's `table.json`."""
    return f"{location}/{OWN_FOLDER}/table.json"


def read_owner(storage: Storage, location: str) -> Owner | None:
    """Return whom a lake table belongs to; None where no service of ours has opened it yet.

    Raises:
        CorruptFileError: `table.json` is damaged, or of another version.
    """
    path = owner_path(location)
    data = storage.read(path)
    if data is None:
        return None
    try:
        found = _OWNERS.decode(data)
    except msgspec.DecodeError as damaged:
        raise CorruptFileError(path, "a table's owner as JSON", str(damaged)) from damaged
    if found.version != 1:
        raise CorruptFileError(path, "an owner of version 1", found.version)
    return found


def copy_ids(storage: Storage, location: str) -> list[int]:
    """Return the ids of the commits that there are copies of, ascending."""
    matches = (_COPY.fullmatch(name) for name in storage.names(f"{location}/{OWN_FOLDER}"))
    return sorted(int(found[1]) for found in matches if found)


def copy_path(location: str, number: int) -> str:
    """Return the path of the copy of a commit."""
    return f"{location}/{OWN_FOLDER}/commit-{number}"


def kept_stamps(storage: Storage, location: str) -> dict[Incarnation, int]:
    """Return the snapshots in which starts took a table, as they wrote them down.

    Raises:
        CorruptFileError: what one wrote is damaged.
    """
    folder = f"{location}/{OWN_FOLDER}"
    kept: dict[Incarnation, int] = {}
    for name in storage.names(folder):
        named = _STAMP.fullmatch(name)
        data = None if named is None else storage.read(f"{folder}/{name}")
        if named is None or data is None:
            continue
        if not data.isdigit():
            path = f"{folder}/{name}"
            raise CorruptFileError(path, "the number of a snapshot", repr(data[:50]))
        kept[Incarnation.parse(named[1])] = int(data)
    return kept


def newest_stamp(kept: Mapping[Incarnation, int]) -> Incarnation | None:
    """Return who was the last to take a table; a start that slept may have written that down after a later one did."""
    last = (one for one in kept if not any(other.succeeds(one) for other in kept))
    return max(last, key=kept.__getitem__, default=None)


@dataclass(frozen=True, slots=True)
class Table:
    """See the module. `snapshots` are those that are there."""

    path: TablePath
    location: str
    storage: Storage
    owner: Owner | None
    schema: TableSchema
    snapshots: Chain
    copy: Snapshot | None

    @classmethod
    def load(cls, storage: Storage, location: str, path: TablePath) -> Table | None:
        """Read a table, None if it is not there."""
        # The owner last: a table that takes this path meanwhile has another one, and readers compare it.
        for _ in range(_TRIES):
            before = read_owner(storage, location)
            schema = newest_schema(storage, location)
            if schema is None:
                return None
            snapshots = Snapshots(storage, location).chain()
            copies = copy_ids(storage, location)
            kept = copy_path(location, copies[-1]) if copies else ""
            data = storage.read(kept) if kept else None
            copy = None if data is None else decode_snapshot(data, kept)
            if snapshots.has_its_head and read_owner(storage, location) == before:
                return cls(path, location, storage, before, schema, snapshots, copy)
        message = (
            f"{path}: another table took the path {location} while it was read, or its head was expired meanwhile, "
            f"{_TRIES} times in a row"
        )
        raise LakeError(message)

    @property
    def manifests(self) -> Manifests:
        """The table's manifests."""
        return Manifests(self.storage, self.location)

    @property
    def latest(self) -> Snapshot | None:
        """The head, None if there is none."""
        return next(iter(self.snapshots), None)

    @property
    def next_id(self) -> int:
        """The id of the next snapshot."""
        return self.snapshots.ids[0] + 1 if self.snapshots.ids else 1

    @property
    def ours(self) -> Iterator[Snapshot]:
        """The snapshots that may carry something of ours, the newest first."""
        return self.snapshots.above(0 if self.owner is None else self.owner.since)

    @property
    def stamp(self) -> Incarnation | None:
        """The incarnation of the newest snapshot that carries one, or of one that another program has expired."""
        found = next((found for found in map(incarnation_of, self.ours) if found is not None), None)
        if found is not None:
            return found
        kept = kept_stamps(self.storage, self.location)
        newest = newest_stamp(kept)
        return newest if newest is not None and self.snapshots.is_expired(kept[newest]) else None

    def newest_commit(self) -> Snapshot | None:
        """Return the newest snapshot that carries offsets, which may be a copy of one that was expired.

        Raises:
            RolledBackError: the table was rolled back behind its newest commit.
        """
        behind = self._check_copy()
        found = next((one for one in self.snapshots if carries_offsets(one)), None)
        return self.copy if found is None and behind else found

    def find(self, round_id: RoundId, step: int) -> int | None:
        """Return the id of a round's commit, None if it is not there."""
        wanted = (str(round_id.incarnation), round_id.name, str(step))
        expired = [self.copy] if self.copy is not None and self.snapshots.is_expired(self.copy.id) else []
        return next((one.id for one in chain(self.ours, expired) if round_of(one) == wanted), None)

    def head(self) -> LakeHead:
        """Return the state of the table.

        Raises:
            RolledBackError: the table was rolled back behind its newest commit.
            CorruptFileError: offsets or an incarnation are damaged.
        """
        newest = self.newest_commit()
        commit = None if newest is None else offset_commit(newest, self._read_own)
        latest = self.latest
        manifests = () if latest is None else self.manifests.manifests_of(latest)
        return LakeHead(
            path=self.path,
            table_id=None if self.owner is None else self.owner.table_id,
            location=self.location,
            snapshot_id=None if latest is None else latest.id,
            stamp=self.stamp,
            commit=commit,
            own=commit if commit is None or commit.incarnation is not None else self._own_commit(),
            files=sum(one.added - one.deleted for one in manifests),
            columns=self.schema.names,
            by_id=columns_by_id(known_columns(self.schema, str(self.path)), field_names(self.schema)),
        )

    def _own_commit(self) -> OffsetCommit | None:
        ours = (one for one in self.ours if carries_offsets(one) and incarnation_of(one) is not None)
        found = next(ours, self.copy)
        return None if found is None else offset_commit(found, self._read_own)

    def _read_own(self, name: str) -> bytes:
        path = f"{self.location}/{OWN_FOLDER}/{name}"
        data = self.storage.read(path)
        if data is None:
            raise CorruptFileError(path, "an offsets file", "nothing")
        return data

    def _check_copy(self) -> bool:
        """Return whether the newest commit of ours was expired by another program.

        Raises:
            RolledBackError: it is not there, nor can it have been expired.
        """
        copy = self.copy
        if copy is None:
            return False
        there = self.snapshots.get(copy.id)
        if there is not None and there.delta_manifest_list == copy.delta_manifest_list:
            return False
        if there is None and self.snapshots.is_expired(copy.id):
            return True
        found = "another snapshot of that number" if there is not None else "it gone"
        message = (
            f"{self.path}: the lake table was rolled back: {copy_path(self.location, copy.id)} is a copy of the newest "
            f"commit, found {found} in the table (head {0 if self.latest is None else self.latest.id}). Roll forward "
            "again, or, to tier anew from the offsets of the head, delete that copy"
        )
        raise RolledBackError(message)


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A table, and the folders of it that a commit or an expiry changes, whatever path they may get meanwhile."""

    table: Table
    snapshots: Folder
    own: Folder

    def again(self) -> HeldTable:
        """Read the table again.

        Raises:
            FencedError: another one has taken its path.
        """
        table = Table.load(self.table.storage, self.table.location, self.table.path)
        self.check_place()
        return self if table is None else replace(self, table=table)

    def note_head(self, number: int) -> None:
        """Write the hints for a snapshot that was created just now, and see that its number is no old one.

        A process may have been paused right before it created the snapshot. If the table went on meanwhile, and that
        number was expired, it is free again: what was created is in no table, and goes.

        Raises:
            OutcomeUnknownError: it is such a number, or that cannot be told.
        """
        try:
            is_old = self._is_old(number)
            if is_old:
                delete_snapshot(self.snapshots, number)
        except LakewardError as away:
            why = "the catalog is away" if isinstance(away, LakeAwayError) else "it cannot be told whether in time"
            message = f"{self.table.path}: snapshot {number} was committed, and {why}: {away}"
            raise OutcomeUnknownError(message) from away
        if is_old:
            message = f"{self.table.path}: snapshot {number} was expired before it was seen that it is there"
            raise OutcomeUnknownError(message)

    def _is_old(self, number: int) -> bool:
        return say_latest(self.snapshots, number) > number and earliest_said(self.snapshots) > number

    def check_place(self) -> None:
        """Check that the table has not been set aside: what was written by its path lies in it.

        Raises:
            FencedError: it has.
        """
        if not (self.snapshots.is_at_its_path and self.own.is_at_its_path):
            message = f"{self.table.path}: the lake table was set aside, and another one has taken its path"
            raise FencedError(message)


@contextmanager
def hold(storage: Storage, location: str, path: TablePath) -> Iterator[HeldTable]:
    """Read a table to change it.

    Raises:
        TableGoneError: it is not there.
        FencedError: another one has taken its path.
    """
    if not schema_ids(storage, location):
        message = f"{path}: the lake has no such table"
        raise TableGoneError(message)
    with storage.pin(f"{location}/snapshot") as snapshots, storage.pin(f"{location}/{OWN_FOLDER}") as own:
        table = Table.load(storage, location, path)
        if table is None:
            message = f"{path}: the lake has no such table any more"
            raise TableGoneError(message)
        held = HeldTable(table, snapshots, own)
        held.check_place()
        yield held


def keep_stamp(held: HeldTable, incarnation: Incarnation) -> None:
    """Write down in which snapshot a start took the table: it outlives an expiry of that one by another program.

    Each start has a file of its own: one that sleeps here cannot put its name in the place of a later one's.

    Raises:
        StorageError: the disk refused.
    """
    table = held.table
    newest = next((one for one in table.ours if incarnation_of(one) == incarnation), None)
    if newest is None:
        return
    name = f"stamp-{incarnation}"
    if name not in table.storage.names(f"{table.location}/{OWN_FOLDER}"):
        held.own.replace(name, str(newest.id).encode())


def delete_older_stamps(held: HeldTable) -> None:
    """Delete what all starts but the last one have written of their stamps.

    Raises:
        StorageError: the disk refused.
    """
    kept = kept_stamps(held.table.storage, held.table.location)
    newest = newest_stamp(kept)
    for one in kept:
        if one != newest:
            held.own.delete(f"stamp-{one}")


def keep_newest(held: HeldTable) -> None:
    """Keep a copy of our newest commit if there is none: the start that made it died before it could.

    Raises:
        StorageError: the disk refused.
    """
    table = held.table
    newest = next((one for one in table.ours if carries_offsets(one) and incarnation_of(one) is not None), None)
    if newest is not None and (table.copy is None or table.copy.id < newest.id):
        keep_copy(held, newest)


def keep_copy(held: HeldTable, snapshot: Snapshot) -> None:
    """Keep a copy of our newest commit, and delete older ones.

    Raises:
        StorageError: the disk refused.
    """
    held.own.replace(f"commit-{snapshot.id}", snapshot.to_bytes())
    delete_older_copies(held)


def delete_older_copies(held: HeldTable) -> None:
    """Delete all copies but the newest, and the offsets files that nothing else needs.

    Raises:
        StorageError: the disk refused.
    """
    table = held.table
    older = copy_ids(table.storage, table.location)[:-1]
    snapshots = Snapshots(table.storage, table.location)
    # Of the snapshots as they are now: whoever slept knows of none that came meanwhile, not even of the own one.
    there = () if set(older) <= set(table.snapshots.ids) else snapshots.ids()
    for number in older:
        data = None if number in (*table.snapshots.ids, *there) else held.own.read(f"commit-{number}")
        if data is not None:
            offsets = decode_snapshot(data, copy_path(table.location, number)).said.get(OFFSETS_FILE)
            tagged = (one.said.get(OFFSETS_FILE) for one in snapshots.tagged())
            if offsets is not None and offsets not in tagged:
                held.own.delete(offsets)
        held.own.delete(f"commit-{number}")
