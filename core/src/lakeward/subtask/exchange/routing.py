"""Which key group a row belongs to: a hash of its lake partition, and of its bucket where that is part of the key."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakeward.model.partitioning import KEY_GROUPS, subtask_of
from lakeward.model.tables import BUCKET_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.model.exchange import KeptRows
    from lakeward.ports import Partitioner

    Ints = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]

_KNOWN_MOST = 100_000
"""Keys whose group is remembered; beyond that all are forgotten."""
_SMALL = 1 << 15
"""Numbers below this fit 16 bits, which NumPy sorts by radix."""


class Routing:
    """The routes of one subtask's rows. Called by one thread."""

    def __init__(self, partitioner: Partitioner, subtasks: int, *, by_bucket: bool) -> None:
        """Know nothing yet; `subtasks` is how many consumers there are.

        If `by_bucket`, the bucket is part of the key.
        """
        self._partitioner = partitioner
        self._subtasks = subtasks
        self.by_bucket = by_bucket
        self._known: dict[tuple[bytes, int], int] = {}

    def divide(self, records: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield, for each consumer that gets any, its rows: those of one partition in their order.

        Rows are put in order once, so those of each partition follow one another as well: their writer need not do it.
        `records` have `__bucket`, and at least one row.
        """
        codes, groups = self._keys(records)
        owners = self._owners(groups)
        first = int(owners[0])
        if (owners == first).all():
            yield first, records
            return
        consumers = owners[codes]
        if len(owners) < _SMALL:
            ranks = np.empty(len(owners), dtype=np.int16)
            ranks[np.argsort(owners, kind="stable")] = np.arange(len(owners), dtype=np.int16)
            order = np.argsort(ranks[codes], kind="stable")
        else:
            order = np.argsort(consumers.astype(np.int16 if self._subtasks < _SMALL else np.int64), kind="stable")
        taken, ordered = records.take(pa.array(order)), consumers[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(ordered)], strict=True):
            yield int(ordered[start]), taken.slice(start, end - start)

    def only(self, records: pa.RecordBatch, subtask: int, kept: KeptRows | None = None) -> pa.RecordBatch:
        """Return the rows that a subtask owns, in their order. Arguments as of `places`."""
        mine = self.places(records, subtask, kept)
        return records if len(mine) == records.num_rows else records.take(pa.array(mine))

    def places(self, records: pa.RecordBatch, subtask: int, kept: KeptRows | None = None) -> Ints:
        """Return the numbers of the rows (with `__bucket`) that a subtask owns, in their order.

        `kept` is of a checkpoint that holds a share: only rows of these key groups, wherever they are.
        """
        codes, keys = self._keys(records)
        groups = keys[codes]
        mine = self._owners(groups) == subtask
        if kept is not None:
            mine &= (groups >= kept.first_group) & (groups < kept.end_group)
        return np.flatnonzero(mine)

    def owner(self, partition: bytes) -> int:
        """Return the subtask that owns a partition as a whole; not where the bucket is part of the key."""
        return subtask_of(self._group(partition, 0), self._subtasks)

    def _owners(self, groups: Ints) -> Ints:
        return groups * self._subtasks // KEY_GROUPS

    def _keys(self, records: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Return the number of each row's key, and the group of each key; no key of either is without a row."""
        codes, partitions = self._partitioner.partition(records)
        if not self.by_bucket:
            return codes, self._groups((partition, 0) for partition in partitions)
        buckets = records.column(BUCKET_COLUMN).to_numpy()
        first = int(buckets[0]) if len(buckets) else 0
        if (buckets == first).all():  # as in each batch of a split: nothing has to be sorted
            return codes, self._groups((partition, first) for partition in partitions)
        width = len(partitions)
        pairs, rows = np.unique(buckets.astype(np.int64) * width + codes, return_inverse=True)
        return rows, self._groups((partitions[pair % width], pair // width) for pair in pairs.tolist())

    def _groups(self, keys: Iterable[tuple[bytes, int]]) -> Ints:
        return np.array([self._group(partition, bucket) for partition, bucket in keys], dtype=np.int64)

    def _group(self, partition: bytes, bucket: int) -> int:
        """Return a key's group: the same in every process and every version."""
        known = self._known.get((partition, bucket))
        if known is None:
            if len(self._known) >= _KNOWN_MOST:
                self._known.clear()
            data = struct.pack(">i", bucket) + partition if self.by_bucket else partition
            digest = hashlib.blake2b(data, digest_size=8).digest()
            known = self._known[partition, bucket] = int.from_bytes(digest, "big") % KEY_GROUPS
        return known
