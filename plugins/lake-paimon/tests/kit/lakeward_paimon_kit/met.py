"""Which troubles seeds have to meet: one that they never meet is one that nothing tries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_paimon_kit.gateway import OF_QUESTIONS, Fate

if TYPE_CHECKING:
    from collections.abc import Iterable

_FATES = frozenset(Fate) - {Fate.PASSED}
TROUBLES = frozenset(
    {
        "killed",
        "overtaken",
        "paused in a call",
        "stale start fenced",
        "dropped and created",
        "storage: refused",
        "storage: answer lost",
        "storage: torn",
        "link: refused",
        "link: answer lost",
        "link: answer lost, and no look",
        "commit landed at a later try",
        "round failed: OutcomeUnknownError",
        "foreign append of a row",
        "foreign empty commit",
        "foreign compaction",
        "foreign compaction of planned files",
        "foreign expiry",
        "foreign expiry that would take an only copy",
        "foreign tag",
        "upkeep landed",
        "upkeep void",
        "upkeep failed: FencedError",
        "upkeep of unknown outcome",
        "expired",
        "table: log",
        "table: bucketed log",
        "table: key",
        "partitions: none",
        "partitions: source",
        "partitions: region",
        "mode: tier",
        "mode: mirror",
        "columns: legacy",
        "columns: clean",
        "store: disk",
        "store: s3",
        "store: rest",
        *(f"{way}: {fate.value}" for way in ("put", "commit") for fate in _FATES),
        *(f"request: {fate.value}" for fate in OF_QUESTIONS),
    }
)
"""As `Fortune.count` calls them."""


def never_met(met: Iterable[str]) -> list[str]:
    """Return the troubles that are not among some, sorted."""
    return sorted(TROUBLES.difference(met))
