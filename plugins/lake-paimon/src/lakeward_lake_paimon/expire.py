"""Expires snapshots, and deletes the files that no snapshot needs any more.

What is to be deleted is written down first: whoever expires next finishes what a crash has interrupted.
"""

from __future__ import annotations

import secrets
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from lakeward.model.lake_offsets import OFFSETS_FILE
from lakeward_lake_paimon.files import metadata_of, own_file, paths_of
from lakeward_lake_paimon.manifests import DELETE
from lakeward_lake_paimon.offsets import carries_offsets, incarnation_of
from lakeward_lake_paimon.snapshots import Snapshots, delete_snapshot, say_earliest
from lakeward_lake_paimon.table import OWN_FOLDER
from lakeward_lake_paimon.tidy import tidy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lakeward_lake_paimon.manifests import Entry, Manifests
    from lakeward_lake_paimon.snapshots import Snapshot
    from lakeward_lake_paimon.table import HeldTable, Table

_PLAN = "expiry-"
_AT_MOST = 200
"""Snapshots that one call expires: it has a time limit, and a table that nothing has expired yet has many thousands."""


class Plan(msgspec.Struct, frozen=True):
    """Snapshots that are expired, and the files that go with them, as paths within the folder of the table `uuid`."""

    version: int
    uuid: str
    snapshots: tuple[int, ...]
    files: tuple[str, ...]


_PLANS = msgspec.json.Decoder(Plan)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def expire(held: HeldTable, keep: frozenset[int], count: int) -> int:
    """Expire snapshots beyond the newest `count`; return how many.

    Spared are `keep`, the newest commit, the stamp, and what consumers still have to read. Where the table has branches
    nothing is expired: they may need any file.

    Raises:
        StorageError: the storage refused; the next call finishes it.
    """
    held = _finish(held, keep)
    table = held.table
    if table.owner is None or table.storage.names(f"{table.location}/branch"):
        return 0
    tidy(held)
    expired = _expirable(table, keep, count)
    above = [number for number in table.snapshots.ids if expired and number > expired[0].id]
    if not above or table.snapshots.get(above[-1]) is None:
        return 0  # nothing to do, or another program expires at this moment
    files = tuple(sorted(_dead_files(table, expired)))
    plan = Plan(1, table.owner.uuid, tuple(one.id for one in expired), files)
    name = f"{_PLAN}{secrets.token_hex(8)}"
    held.check_place()
    held.own.replace(name, msgspec.json.encode(plan))
    _carry_out(held, plan, name)
    return len(expired)


def _expirable(table: Table, keep: frozenset[int], count: int) -> list[Snapshot]:
    """Return the snapshots to expire, the newest first. Above them none is missing, as Paimon's readers expect."""
    ids = table.snapshots.ids
    if not ids:
        return []
    needed = [ids[min(count, len(ids)) - 1], *_consumed(table)]
    needed += [one.id for one in islice(filter(carries_offsets, table.snapshots), 1)]
    needed += [one.id for one in islice((one for one in table.ours if incarnation_of(one) is not None), 1)]
    old = [number for number in ids if number < min(needed) and number not in keep][-_AT_MOST:]
    return [one for one in map(table.snapshots.get, old) if one is not None]


def _consumed(table: Table) -> Iterator[int]:
    """Yield the snapshots that streaming readers go on from (`consumer-id`)."""
    folder = f"{table.location}/consumer"
    for name in table.storage.names(folder):
        data = table.storage.read(f"{folder}/{name}")
        if data is not None and name.startswith("consumer-"):
            said: Any = msgspec.json.decode(data)
            yield int(said["nextSnapshot"])


def _dead_files(table: Table, expired: Sequence[Snapshot]) -> set[str]:
    """Return the files that only expired snapshots need, as paths within the table's folder."""
    every = {one.id for one in expired}
    # Of one whose lists are gone nothing is known: it was created late, with a number that had been expired before.
    stored = table.manifests.names()
    expired = [one for one in expired if stored.issuperset(one.lists)]
    if not expired:
        return set()
    gone = {one.id for one in expired}
    manifests = table.manifests
    first = min((number for number in table.snapshots.ids if number > max(every)), default=0)
    # A manifest that a snapshot does not name is in none above it.
    lower = [table.snapshots.get(number) for number in table.snapshots.ids if number <= first and number not in every]
    left = [*(one for one in lower if one is not None), *Snapshots(table.storage, table.location).tagged()]
    old, kept = metadata_of(table, expired), metadata_of(table, left)
    names = {name for found in old.values() for name in found} - {name for found in kept.values() for name in found}
    dead = (set(old) - set(kept)) | {f"{manifests.folder}/{name}" for name in names}
    if table.copy is not None and (offsets := table.copy.said.get(OFFSETS_FILE)) is not None:
        # All else that a copy says is in itself.
        dead.discard(own_file(table, offsets))
    for snapshot in expired:
        for entry in manifests.entries(manifests.read_list(snapshot.changelog_manifest_list)):
            dead.update(paths_of(table, entry))
    older = [one for one in left if one.id < first]
    there = {one.id: one for one in (*expired, *left) if one.id <= first}
    needed = {key for one in older for key in manifests.live(one)}
    for entry in _last_needed(manifests, there, gone):
        if entry.key not in needed:
            dead.update(paths_of(table, entry))
    alive = {
        path
        for one in [*older, there[first]]
        for entry in manifests.live(one).values()
        for path in paths_of(table, entry)
    }
    return {path.removeprefix(f"{table.location}/") for path in dead - alive}


def _last_needed(manifests: Manifests, there: Mapping[int, Snapshot], gone: Collection[int]) -> Iterator[Entry]:
    """Yield the files that snapshots which go needed, and those after them do not."""
    for number in sorted({*gone, *(id_ for id_ in there if id_ - 1 in gone)}):
        # A file that a snapshot takes away is needed by the ones before it alone.
        taken = manifests.entries(manifests.read_list(there[number].delta_manifest_list))
        yield from (entry for entry in taken if entry.kind == DELETE)
        if number in gone and number + 1 not in there:
            # It was kept while those after it were expired: nothing says any more what they took away.
            nearest = manifests.live(there[min(id_ for id_ in there if id_ > number)])
            yield from (entry for key, entry in manifests.live(there[number]).items() if key not in nearest)


def _finish(held: HeldTable, keep: frozenset[int]) -> HeldTable:
    """Carry out the plans that a crash has left, but one with a snapshot that is now to be kept.

    Return the table as it is then.
    """
    table = held.table
    found = False
    for name in table.storage.names(f"{table.location}/{OWN_FOLDER}"):
        data = table.storage.read(own_file(table, name)) if name.startswith(_PLAN) else None
        if data is None:
            continue
        plan = _PLANS.decode(data)
        if table.owner is not None and plan.uuid == table.owner.uuid and not keep.intersection(plan.snapshots):
            _carry_out(held, plan, name)
            found = True
    return held.again() if found else held


def _carry_out(held: HeldTable, plan: Plan, name: str) -> None:
    table = held.table
    left = [number for number in table.snapshots.ids if number not in plan.snapshots]
    if left:
        say_earliest(held.snapshots, _first_of_the_end(left))
    for number in sorted(plan.snapshots):
        delete_snapshot(held.snapshots, number)
    for path in plan.files:
        table.storage.delete(f"{table.location}/{path}")
    held.own.delete(name)


def _first_of_the_end(ids: Sequence[int]) -> int:
    """Return the first of the ids that follow one another up to the last; `ids` descend."""
    first = ids[0]
    for number in ids[1:]:
        if number != first - 1:
            break
        first = number
    return first
