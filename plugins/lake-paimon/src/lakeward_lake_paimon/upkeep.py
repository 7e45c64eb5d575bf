"""Compacts a table's buckets and commits that, so that a process that dies anywhere leaves nothing behind.

A plan is written before the files: whoever compacts next deletes the files of a plan that no snapshot names. Only the
start whose stamp is on the head does either; its commit fails if another one stamps meanwhile.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import msgspec

from lakeward_lake_paimon.commit import COMPACT, Change, SnapshotBuilder
from lakeward_lake_paimon.compaction import MOST_BYTES, due_tasks, merge_task
from lakeward_lake_paimon.files import leftovers, own_file, referenced
from lakeward_lake_paimon.offsets import INCARNATION, OWN_USER, TABLE_ID
from lakeward_lake_paimon.snapshots import create_snapshot
from lakeward_lake_paimon.table import OWN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.identity import Incarnation
    from lakeward_lake_paimon.compaction import Task
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.table import HeldTable, Table

_PLAN = "compaction-"
_NAME = "lakeward-compact"


class Plan(msgspec.Struct, frozen=True):
    """Files with this name in theirs are of one compaction of the table `uuid`."""

    version: int
    uuid: str
    name: str


_PLANS = msgspec.json.Decoder(Plan)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def compact(held: HeldTable, incarnation: Incarnation, options: PaimonOptions, wall_ms: Callable[[], int]) -> int:
    """Compact the buckets of a table that are due; return how many were.

    At least one, and after `MOST_BYTES` none is begun. Nothing is done where the stamp on the head is another one than
    `incarnation`.

    Raises:
        StorageError: the storage refused.
    """
    table = held.table
    if table.stamp != incarnation or table.owner is None:
        return 0
    clean_up(held)
    tasks, size = [], 0
    for task in due_tasks(table):
        if size < MOST_BYTES:
            tasks.append(task)
            size += task.size_bytes
    if not tasks:
        return 0
    uuid = secrets.token_hex(16)
    name = f"{_NAME}-{uuid}"
    plan = f"{_PLAN}{uuid}"
    held.check_place()
    held.own.replace(plan, msgspec.json.encode(Plan(1, table.owner.uuid, name)))
    done = _commit(held, tasks, options, wall_ms, uuid, name)
    clean_up(held)
    return len(tasks) if done else 0


def _commit(  # noqa: PLR0917 - what is merged, how, and under which names
    held: HeldTable, tasks: list[Task], options: PaimonOptions, wall_ms: Callable[[], int], uuid: str, name: str
) -> bool:
    """Merge, and commit once; another snapshot meanwhile is no error: the next call begins anew."""
    table = held.table
    added = [entry for task in tasks for entry in merge_task(table, task, options, name)]
    gone = [entry.taken_away() for task in tasks for entry in task.entries]
    properties = {INCARNATION: str(table.stamp), TABLE_ID: "" if table.owner is None else str(table.owner.table_id)}
    change = Change(COMPACT, OWN_USER, properties, [*gone, *added])
    snapshot = SnapshotBuilder(table, uuid, wall_ms()).build(change)
    held.check_place()
    if create_snapshot(held.snapshots, snapshot, uuid):
        return True
    for path in leftovers(table, uuid):
        table.storage.delete(path)
    return False


def clean_up(held: HeldTable) -> None:
    """Delete what compactions have written that are in no snapshot, and their plans."""
    table = held.table
    for plan in table.storage.names(f"{table.location}/{OWN_FOLDER}"):
        data = table.storage.read(own_file(table, plan)) if plan.startswith(_PLAN) else None
        if data is None:
            continue
        said = _PLANS.decode(data)
        if table.owner is not None and said.uuid == table.owner.uuid:
            _delete_files(table, said, plan.removeprefix(_PLAN))
            held.own.delete(plan)


def _delete_files(table: Table, plan: Plan, uuid: str) -> None:
    now = type(table).load(table.storage, table.location, table.path)
    if now is None or now.owner != table.owner:
        return
    found = [path for path in table.storage.list(table.location) if f"-{plan.name}-" in path.rpartition("/")[2]]
    written = [*found, *leftovers(now, uuid)]
    for path in sorted(frozenset(written) - referenced(now, written)):
        table.storage.delete(path)
