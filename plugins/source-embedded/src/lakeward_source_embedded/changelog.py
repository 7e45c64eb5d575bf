"""Merges changes with the current values as a Fluss primary-key table does, all at once, by array operations.

An upsert of an existing key gives -U with the old row and +U with the new one, even if they are equal; of a new key,
+I. A delete of an existing key gives -D with the old row; of an unknown key, nothing. Changes of one key within one
load are applied in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lakeward.model.tables import Change
from lakeward_source_embedded.rows import UPSERT

if TYPE_CHECKING:
    Ints = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Chains:
    """The changes of a load, chained by key.

    `previous` is the change of the same key before each row, -1 for the first. `heads` are the first changes of each
    key and `lasts` the last ones, both ordered by key hash.
    """

    previous: Ints
    heads: Ints
    lasts: Ints
    order: Ints
    """All rows, by key hash, then in their own order."""


@dataclass(frozen=True, slots=True)
class Changelog:
    """Log records, bucket group after bucket group, in order.

    `rows` is where each record's values are: below the number of changes, a row of the load; from there on, an old row.
    `counts` is the number of records of each group. `places` is, for each change that is an upsert, its record's
    position within its group, -1 for others.
    """

    rows: Ints
    changes: npt.NDArray[np.uint8]
    counts: Ints
    places: Ints


def chain_keys(hashes: npt.NDArray[np.uint64]) -> Chains:
    """Chain the changes of each key, given the key hash of each change, in order."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    last = np.ones(len(order), dtype=bool)
    last[:-1] = first[1:]
    previous = np.full(len(order), -1, dtype=np.int64)
    previous[order[~first]] = order[np.flatnonzero(~first) - 1]
    return Chains(previous, order[first], order[last], order)


def merge_changes(
    operations: npt.NDArray[np.int8], chains: Chains, found: Flags, groups: Ints, group_count: int
) -> Changelog:
    """Make the log records of a load: for each change UPSERT or DELETE, and its bucket group, 0 <= g < `group_count`.

    `chains` are of the same changes. `found` says for each of `chains.heads` whether the key has a current row; the old
    rows are numbered in this order.
    """
    before = _before(operations, chains, found)
    had = before >= 0
    upsert = operations == UPSERT
    counts = had.astype(np.int64) + upsert
    sequence = np.argsort(groups, kind="stable") if group_count > 1 else np.arange(len(groups))
    ends = np.cumsum(counts[sequence])
    starts = np.empty(len(counts), dtype=np.int64)
    starts[sequence] = ends - counts[sequence]
    rows = np.empty(int(counts.sum()), dtype=np.int64)
    changes = np.empty(len(rows), dtype=np.uint8)
    rows[starts[had]] = before[had]
    changes[starts[had]] = np.where(upsert[had], Change.UPDATE_BEFORE, Change.DELETE)
    new_at = starts + had
    rows[new_at[upsert]] = np.flatnonzero(upsert)
    changes[new_at[upsert]] = np.where(had[upsert], Change.UPDATE_AFTER, Change.INSERT)
    group_counts = np.bincount(groups, weights=counts, minlength=group_count).astype(np.int64)
    group_starts = np.cumsum(group_counts) - group_counts
    places = np.where(upsert, new_at - group_starts[groups], -1)
    return Changelog(rows, changes, group_counts, places)


def _before(operations: npt.NDArray[np.int8], chains: Chains, found: Flags) -> Ints:
    """Return the index of the row before each change, -1 if the key did not exist."""
    count = len(operations)
    before = chains.previous.copy()
    chained = before >= 0
    before[chained] = np.where(operations[before[chained]] == UPSERT, before[chained], -1)
    before[chains.heads[found]] = count + np.arange(int(found.sum()))
    return before
