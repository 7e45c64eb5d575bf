"""Mutants of the lease machine: what of it is replaced by what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.leases.state import LeaseState
from lakeward.machines.leases.table_lease import BucketLease, LeaseStatus, Need, TableLease

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.machines.leases import LeasesEvent
    from lakeward.model.tables import TableBucket


def _start_generation_unless_unknown(state: LeaseState, event: LeasesEvent, *, unsettled: bool = False) -> None:
    if not unsettled:
        _start_generation(state, event)


_start_generation = LeaseState.start_generation


def _tell_before_verified(table: TableLease, bucket: TableBucket) -> bool:
    return table.leases[bucket].status is not LeaseStatus.WANTED


def _drop_at_once(state: LeaseState) -> bool:
    return True


def _end_every_need(table: TableLease, buckets: Collection[TableBucket], need: Need) -> None:
    del need
    table.end_all_needs(buckets)


def _keep_for_ever(table: TableLease, bucket: TableBucket, lease: BucketLease, need: Need) -> None:
    if need is not Need.CHECKPOINT:
        _end_need(table, bucket, lease, need)


_end_need = TableLease._end_need


def _release_nothing(table: TableLease) -> frozenset[TableBucket]:
    return frozenset()


def _ask_not_what_checkpoints_need(state: LeaseState) -> bool:
    return all(
        table.leases[bucket].status is LeaseStatus.VERIFIED
        for table in state.tables.values()
        for bucket in table.granted | table.needed_by_checkpoint()
    )


def _take_over_what_was_granted(state: LeaseState) -> bool:
    return state.checkpoints_read and all(
        table.leases[bucket].status is LeaseStatus.VERIFIED
        for table in state.tables.values()
        for bucket in table.granted
    )


LEASES: dict[str, tuple[type, str, object]] = {
    "tells the round before the snapshot is verified": (TableLease, "_is_safe", _tell_before_verified),
    "keeps the id after an unknown outcome": (LeaseState, "start_generation", _start_generation_unless_unknown),
    "drops the old id before the new one protects": (LeaseState, "old_leases_are_replaced", _drop_at_once),
    "drops the old id before it knows what checkpoints need": (
        LeaseState,
        "old_leases_are_replaced",
        _ask_not_what_checkpoints_need,
    ),
    "lets a checkpoint's snapshots go with its round": (TableLease, "end_need", _end_every_need),
    "drops the old id before the new one protects what a checkpoint needs": (
        LeaseState,
        "old_leases_are_replaced",
        _take_over_what_was_granted,
    ),
    "holds a checkpoint's snapshots for ever": (TableLease, "_end_need", _keep_for_ever),
    "forgets to release": (TableLease, "releasing", property(_release_nothing)),
}
"""By name: the class, its member, and what stands there instead."""
