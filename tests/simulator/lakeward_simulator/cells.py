"""Which fault can occur at which step, and why the others cannot: what the table of hits has to show.

A fault that cannot occur by the step's own protocol may still be met there, where another table or a late clean-up is
at work at the same time. Such hits are not counted, and nobody waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward_simulator.faults import BUCKETS, CALLS, COMMON, DISK, EXCHANGE, KINDS, ROWS, STEPS

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

_LAKE = frozenset({*(f"lake {how}" for how in CALLS["lake"]), "crash in lake"})
_SUBTASKS = frozenset({
    "subtask crash", "subtask pause", "executor lost", "job crash", "rescale", "connection lost", "messages delayed",
    "messages repeated", "messages reordered",
})  # fmt: skip
_CHECKPOINT = frozenset({"close", "cut", "drain", "collect", "store"})


@dataclass(frozen=True, slots=True)
class Impossible:
    """A group of cells that cannot be hit, or that no run was found to hit; the reason says which."""

    kinds: frozenset[str]
    steps: frozenset[str]
    reason: str


IMPOSSIBLE = (
    Impossible(
        _SUBTASKS,
        frozenset({"start", "open", "lease", "commit", "complete", "report", "idle"}),
        "the table has no subtask: its job is launched once it is leased, and has ended before it is committed",
    ),
    Impossible(
        frozenset(EXCHANGE),
        frozenset(STEPS) - {"read", "recover"} - _CHECKPOINT,
        "there is no channel: they are opened once all subtasks are there, and ended once everything is written",
    ),
    Impossible(
        frozenset(DISK),
        frozenset(STEPS) - {"recover"} - _CHECKPOINT,
        "no disk is used: rows are spilled, and read from there, while they are restored or a checkpoint is taken",
    ),
    Impossible(
        frozenset(DISK),
        frozenset({"cut", "drain", "store"}),
        "no run was found: the step is over once a message, or an answer, has come, and no disk was used by then",
    ),
    Impossible(
        frozenset(ROWS),
        frozenset({"cut"}),
        "no run was found: the step is over at once, unless data is late of a gang that has restored rows before",
    ),
    Impossible(
        frozenset({"disk full"}),
        _CHECKPOINT,
        "nothing is written: no checkpoint is taken before everything is spilled",
    ),
    Impossible(
        frozenset(ROWS),
        frozenset(STEPS) - {"launch", "recover", "read"} - _CHECKPOINT,
        "no round is at work that has a checkpoint with rows, and goes on from it",
    ),
    Impossible(
        _LAKE,
        frozenset({"start", "lease", "launch", "settle"}),
        "the lake is not called: a start sweeps old rounds once their tables are offered, and no commit is due",
    ),
    Impossible(
        _LAKE,
        _CHECKPOINT,
        "the lake is not called while a checkpoint is taken: a step is committed once it has completed",
    ),
    Impossible(
        _LAKE,
        frozenset({"recover"}),
        "the lake is not called: a step was on its way earlier, or is committed once all rows are written",
    ),
    Impossible(
        frozenset({"other service"}),
        frozenset({"recover"}),
        "there is no other service: a table with a lake partitioning is mirrored, and a mirrored lake table has one",
    ),
    Impossible(
        frozenset({"lake conflict"}),
        frozenset({"open", "complete", "report", "idle"}),
        "nothing is swapped: only a commit can lose against somebody else's",
    ),
    Impossible(
        frozenset({"lake unknown"}),
        frozenset({"open"}),
        "the lake is only read, and stamped, which may be done twice",
    ),
    Impossible(
        frozenset({"store torn"}),
        frozenset(STEPS) - {"collect", "store"},
        "no file of a checkpoint is written: all others are replaced as a whole",
    ),
)
CELLS = tuple(
    (kind, step)
    for kind in KINDS
    for step in STEPS
    if not any(kind in group.kinds and step in group.steps for group in IMPOSSIBLE)
)
"""Every pair of kind and step that can occur."""
_RARE = {
    "launch": 2,
    "close": 2,
    "cut": 2,
    "collect": 2,
    "store": 3,
    "settle": 4,
    "drain": 2,
    "start": 3,
    "commit": 2,
    "complete": 3,
    "report": 2,
    "idle": 2,
}
"""How much oftener than others a step is aimed at, for faults aimed there often miss."""
_THIN = {("lease", step): 3 for step in ("start", "open", "launch", "commit", "complete")} | {
    ("lake", step): 3 for step in ("complete", "report", "idle")
}
"""As `_RARE`, for calls that a service rarely gets at a step."""
_WEIGHTS = [_RARE.get(step, 1) * max(_THIN.get((word, step), 1) for word in kind.split()) for kind, step in CELLS]

_DRAWN = [(cell, weight) for cell, weight in zip(CELLS, _WEIGHTS, strict=True) if cell[1] != "recover"]
"""Most runs never restore a row: what is to happen meanwhile is drawn for those that do."""
_BY_KIND = {kind: [(cell, weight) for cell, weight in _DRAWN if cell[0] == kind] for kind in KINDS}


_COMMON = [(cell, weight) for cell, weight in _DRAWN if cell[0] in COMMON]
_COMMON_CELLS, _COMMON_WEIGHTS = [cell for cell, _ in _COMMON], [weight for _, weight in _COMMON]


def draw(chance: Random, kinds: Collection[str] = COMMON) -> tuple[str, str]:
    """Draw a cell.

    Args:
        chance: of the seed.
        kinds: of these faults only.
    """
    if kinds is COMMON:
        return chance.choices(_COMMON_CELLS, _COMMON_WEIGHTS)[0]
    kind = chance.choice([*kinds])
    cells = _BY_KIND[kind]
    return chance.choices([cell for cell, _ in cells], [weight for _, weight in cells])[0]


def draw_at_recovery(chance: Random) -> tuple[str, str]:
    """Draw a cell of a recovery: any fault at its step, or a disk's, or rows', at any of theirs.

    Args:
        chance: of the seed.
    """
    return chance.choice(_RECOVERY)


_RECOVERY = [cell for cell in CELLS if (cell[1] == "recover" and cell[0] not in BUCKETS) or cell[0] in {*DISK, *ROWS}]
