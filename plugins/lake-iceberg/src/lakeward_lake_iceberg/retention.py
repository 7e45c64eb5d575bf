"""Which snapshots a table keeps: by the rules of its branches and tags, else by its properties, else as configured.

Iceberg spec, "Snapshot Retention Policy". A branch or tag of others whose own rules do not say when it ends stays for
ever, with all that the branch descends from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from lakeward.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.refs import SnapshotRef
    from pyiceberg.table.snapshots import Snapshot

_LEAST, _AGE, _REF_AGE = (
    f"history.expire.{name}" for name in ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms")
)
_STAGED_MS = 5 * 24 * 60 * 60 * 1000
"""Up to which age a snapshot is kept that no branch or tag leads to: Iceberg's default for all."""


@dataclass(frozen=True, slots=True)
class Kept:
    """How many of the newest snapshots are kept at least, and up to which age the others are, in ms."""

    count: int
    age_ms: int


class Retention:
    """The rules of one table, as it was loaded."""

    def __init__(self, metadata: TableMetadata, configured: Kept, now_ms: int) -> None:
        """Read the properties; `configured` counts where neither a branch nor the table says another thing.

        `now_ms` is the time in ms since 1970.

        Raises:
            SchemaMismatchError: a property is no number.
        """
        self._known = {one.snapshot_id: one for one in metadata.snapshots}
        self._refs = metadata.refs
        self._now_ms = now_ms
        told = _number(metadata.properties, _AGE)
        self._default = Kept(
            max(1, _number(metadata.properties, _LEAST) or configured.count),
            configured.age_ms if told is None else told,
        )
        self._ref_age_ms = _number(metadata.properties, _REF_AGE)
        self._staged_ms = _STAGED_MS if told is None else told

    def of_main(self, history: Sequence[Snapshot]) -> int:
        """Return how many of the newest snapshots of main are kept."""
        return self._count(history, self._of(self._refs.get(MAIN_BRANCH)))

    def ended(self) -> dict[str, int]:
        """Return the branches and tags that are older than they may become, and their snapshots."""
        found = {}
        for name, reference in self._refs.items():
            most_ms = self._ref_age_ms if reference.max_ref_age_ms is None else reference.max_ref_age_ms
            snapshot = self._known.get(reference.snapshot_id)
            if name != MAIN_BRANCH and snapshot is not None and most_ms is not None and self._age(snapshot) > most_ms:
                found[name] = reference.snapshot_id
        return found

    def staged(self) -> set[int]:
        """Return the young snapshots that no branch or tag leads to: somebody may make one of them main."""
        led_to = {one.snapshot_id for ref in self._refs.values() for one in self.history(ref.snapshot_id)}
        young = (one for one in self._known.values() if self._age(one) < self._staged_ms)
        return {one.snapshot_id for one in young} - led_to

    def named(self) -> set[int]:
        """Return the snapshots that other branches and tags keep, but for those that have ended."""
        found: set[int] = set()
        for name in self._refs.keys() - self.ended().keys() - {MAIN_BRANCH}:
            reference, history = self._refs[name], list(self.history(self._refs[name].snapshot_id))
            limits = (reference.min_snapshots_to_keep, reference.max_snapshot_age_ms)
            if reference.snapshot_ref_type is SnapshotRefType.TAG:
                history = history[:1]
            elif limits != (None, None):
                history = history[: self._count(history, self._of(reference))]
            found |= {one.snapshot_id for one in history}
        return found

    def history(self, snapshot_id: int) -> Iterator[Snapshot]:
        """Yield a snapshot and what it descends from, as far as it is retained."""
        current = self._known.get(snapshot_id)
        while current is not None:
            yield current
            current = self._known.get(current.parent_snapshot_id or 0)

    def _of(self, reference: SnapshotRef | None) -> Kept:
        if reference is None:
            return self._default
        count, age_ms = reference.min_snapshots_to_keep, reference.max_snapshot_age_ms
        default = self._default
        return Kept(default.count if count is None else count, default.age_ms if age_ms is None else age_ms)

    def _count(self, history: Sequence[Snapshot], kept: Kept) -> int:
        old = (place for place, one in enumerate(history) if place >= kept.count and self._age(one) >= kept.age_ms)
        return next(old, len(history))

    def _age(self, snapshot: Snapshot) -> int:
        return max(0, self._now_ms - snapshot.timestamp_ms)


def _number(properties: Mapping[str, str], name: str) -> int | None:
    told = properties.get(name)
    try:
        return None if told is None else int(told)
    except ValueError:
        message = f"table property {name}: expected a whole number, found {told!r}"
        raise SchemaMismatchError(message) from None
