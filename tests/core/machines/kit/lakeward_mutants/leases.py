"""Mutants of the lease machine: what of it is replaced by what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.lease_ledger import Claim, Need, Slot, Standing
from lakeward.machines.lease_memory import LeaseMemory

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.model.tables import TableBucket


def _renumber_unless_unknown(memory: LeaseMemory, now: float, *, unsettled: bool = False) -> None:
    if not unsettled:
        _renumber(memory, now)


_renumber = LeaseMemory.renumber


def _tell_before_verified(claim: Claim, bucket: TableBucket) -> bool:
    return claim.slots[bucket].standing is not Standing.WANTED


def _drop_at_once(memory: LeaseMemory) -> bool:
    return True


def _end_every_need(claim: Claim, buckets: Collection[TableBucket], need: Need) -> None:
    del need
    claim.let_go(buckets)


def _cover_no_checkpoint(claim: Claim, slot: Slot) -> None:
    del claim, slot


def _keep_for_ever(claim: Claim, bucket: TableBucket, slot: Slot, need: Need) -> None:
    if need is not Need.CHECKPOINT:
        _need_no_more(claim, bucket, slot, need)


_need_no_more = Claim._need_no_more


def _release_nothing(claim: Claim) -> frozenset[TableBucket]:
    return frozenset()


LEASES: dict[str, tuple[type, str, object]] = {
    "tells the round before the snapshot is verified": (Claim, "_is_safe", _tell_before_verified),
    "keeps the id after an unknown outcome": (LeaseMemory, "renumber", _renumber_unless_unknown),
    "drops the old id before the new one protects": (LeaseMemory, "taken_over", _drop_at_once),
    "lets a checkpoint's snapshots go with its round": (Claim, "end_need", _end_every_need),
    "drops the old id before the new one protects what a checkpoint needs": (
        Claim,
        "cover_checkpoint",
        _cover_no_checkpoint,
    ),
    "holds a checkpoint's snapshots for ever": (Claim, "_need_no_more", _keep_for_ever),
    "forgets to release": (Claim, "releasing", property(_release_nothing)),
}
"""By name: the class, its member, and what stands there instead."""
