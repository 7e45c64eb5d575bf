"""Mutants of the lease machine: what of it is replaced by what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.leases import RULES, CallOutcomeUnknown, CallState, Leases, rules
from lakeward.machines.leases.state import Draft, LeaseState, LeaseStatus, Need, TableLease
from lakeward.machines.machine import Rule
from lakeward_mutants.changed import with_rules

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.model.tables import TableBucket


def _tell_before_verified(table: TableLease, bucket: TableBucket) -> bool:
    return table.leases[bucket].status is not LeaseStatus.WANTED


def _drop_at_once(state: LeaseState) -> bool:
    return True


def _end_every_need(table: TableLease, buckets: Collection[TableBucket], need: Need) -> TableLease:
    del need
    return table.end_all_needs(buckets)


def _keep_for_ever(draft: Draft, bucket: TableBucket, need: Need) -> None:
    if need is not Need.CHECKPOINT:
        _end_need(draft, bucket, need)


_end_need = Draft.end_need


def _release_nothing(table: TableLease) -> frozenset[TableBucket]:
    return frozenset()


def _are_replaced(state: LeaseState) -> bool:
    return all(
        lease.verified
        for table in state.tables.values()
        for lease in table.leases.values()
        if lease.granted or Need.CHECKPOINT in lease.needs
    )


def _take_over_what_was_granted(state: LeaseState) -> bool:
    return state.checkpoints_read and all(
        lease.verified for table in state.tables.values() for lease in table.leases.values() if lease.granted
    )


_KEEPS_THE_ID = with_rules(
    RULES,
    *(
        Rule(state, CallOutcomeUnknown, when=rules.answers_open_call, to=CallState.IDLE, do=do)
        for state, do in (
            (CallState.ACQUIRING, rules.fail_call),
            (CallState.RENEWING, rules.forget_call),
            (CallState.RELEASING, rules.fail_release),
        )
    ),
)
LEASES: dict[str, tuple[type, str, object]] = {
    "tells the round before the snapshot is verified": (TableLease, "is_safe", _tell_before_verified),
    "keeps the id after an unknown outcome": (Leases, "rules", _KEEPS_THE_ID),
    "drops the old id before the new one protects": (LeaseState, "old_leases_are_replaced", _drop_at_once),
    "drops the old id before it knows what checkpoints need": (LeaseState, "old_leases_are_replaced", _are_replaced),
    "lets a checkpoint's snapshots go with its round": (TableLease, "end_need", _end_every_need),
    "drops the old id before the new one protects what a checkpoint needs": (
        LeaseState,
        "old_leases_are_replaced",
        _take_over_what_was_granted,
    ),
    "holds a checkpoint's snapshots for ever": (Draft, "end_need", _keep_for_ever),
    "forgets to release": (TableLease, "releasing", property(_release_nothing)),
}
"""By name: the class, its member, and what stands there instead."""
