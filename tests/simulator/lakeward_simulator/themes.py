"""What a run is about: some of its faults are drawn from a theme, aimed at a window where much has been missed.

Faults drawn one by one rarely meet: most rounds were over before a second one struck, hardly any was gone on with in
the middle of a split, and next to no answer came after its caller had given up. A theme puts together what has to meet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward_simulator.cells import draw, draw_at_recovery
from lakeward_simulator.faults import BUCKETS, COMMON, DISK, EXCHANGE, NEEDS, ROWS, Fault

if TYPE_CHECKING:
    from random import Random

_ROUND = ("read", "close", "cut", "drain", "collect", "store")
_DEEP = frozenset({*_ROUND, "settle", "commit", "complete"})
"""Steps at which a round can have a past: a fault there often waits until it has one."""
_ENDS = ("coordinator crash", "coordinator crash", "second start", "coordinator pause", "source restart",
         "crash in store", "crash in source")  # fmt: skip
"""After these a round is gone on with from its checkpoint, by a later start or under another epoch."""


@dataclass(frozen=True, slots=True)
class ThemeStep:
    """One fault of a theme: one of `kinds`, at one of `steps`."""

    kinds: tuple[str, ...]
    steps: tuple[str, ...]
    needs: str = ""
    times: tuple[int, ...] = (1,)
    amid: tuple[str, ...] = ()
    call: str = ""
    brief: bool = False


_RESUME = ThemeStep(_ENDS, _ROUND, "checkpoint")
_AGAIN = ThemeStep(_ENDS, (*_ROUND, "commit", "open", "launch"), "restored")
_ATTEMPT = ThemeStep(
    ("subtask crash", "subtask pause", "executor lost", "job crash", "rescale", "connection lost",
     "messages delayed", "messages repeated", "messages reordered"),
    _ROUND,
)  # fmt: skip
_ATTEMPT_LATER = ThemeStep(_ATTEMPT.kinds, _ROUND, "checkpoint")
_UNSURE = ThemeStep(("lake unknown",), ("commit",), "", (1, 1, 2, 3, 9))
_HANGS = ThemeStep(("lake slow", "store slow", "source slow"), ("commit", "complete"))
_SLEEPS = ThemeStep(
    ("store slow", "lake slow", "store slow"),
    ("open", "commit", "complete", "idle", "start", "store", "report"),
    amid=("coordinator pause", "coordinator pause", "second start"),
)
"""A coordinator that stands still in the middle of a sweep, a commit or an upload, while its successor works."""
_SWEEPS_LATE = ThemeStep(
    ("store slow",),
    ("open", "commit", "complete", "report"),
    amid=("asleep",),
    call="list",
)
"""A coordinator that is about to list journals or checkpoints, while its successor makes some."""
_PART = ThemeStep(("store fails", "store unknown", "store torn", "store slow"), ("collect", "store"))
THEMES: tuple[tuple[ThemeStep, ...], ...] = (
    (_RESUME,),
    (_RESUME, _AGAIN),
    (_RESUME, _AGAIN, _ATTEMPT_LATER),
    (_ATTEMPT, _ATTEMPT_LATER, _RESUME),
    (_ATTEMPT, _ATTEMPT_LATER, _ATTEMPT_LATER),
    (_UNSURE, ThemeStep(_ENDS, ("commit", "complete", "open"))),
    (_UNSURE, _UNSURE),
    (_UNSURE, _RESUME),
    (_HANGS,),
    (_SLEEPS,),
    (_RESUME, _SLEEPS),
    (_ATTEMPT, _SLEEPS, _SLEEPS),
    (ThemeStep(("source away",), ("read",)), ThemeStep(("second start",), _ROUND), ThemeStep(("job crash",), _ROUND)),
    (ThemeStep(("subtask pause",), ("read",)), ThemeStep(("subtask pause", "job crash"), ("read",), "stepped")),
    (_HANGS, ThemeStep(("source restart", "second start", "coordinator pause", "other service"), ("commit",))),
    (_PART, _RESUME),
    (_SWEEPS_LATE,),
    (
        ThemeStep(("job crash", "rescale"), _ROUND, "checkpoint"),
        ThemeStep(("graceful stop",), ("launch",), "checkpoint"),
    ),
    (_RESUME, ThemeStep(("coordinator pause",), ("open", "read", "commit", "store"))),
    (_RESUME, ThemeStep(("table recreated", "table dropped"), ("open", "read", "commit", "idle"))),
    (_RESUME, ThemeStep(("leases expire", "snapshots cleaned"), ("open", "lease", "launch", "read"))),
    (ThemeStep(("coordinator pause",), (*_ROUND, "open", "commit")), ThemeStep(("second start",), _ROUND)),
)

_LATE = ThemeStep(("channel slow", "credit late", "channel stalled"), ("read", "read", "close", "cut"))
_MEMBER = ThemeStep(
    ("subtask crash", "executor lost", "job crash", "rescale", "channel lost", "subtask pause"), _ROUND, "checkpoint"
)
"""Whoever is lost, the whole launch is: the round goes on from its newest checkpoint."""
_MEMBER_AGAIN = ThemeStep(_MEMBER.kinds, ("launch", "read", "read", "close", "cut", "collect"), "relaunched")
"""Soon after a restore, or in the midst of it."""
_SEGMENT = ThemeStep(
    ("store fails", "store slow", "store unknown", "crash in store"),
    ("close", "cut", "drain", "collect", "read"),
    times=(1, 1, 2, 6),
    call="/segments/",
)
"""Rows beside a checkpoint, as they are written."""
_SEGMENT_READ = ThemeStep(_SEGMENT.kinds, ("launch", "read", "read"), "relaunched", call="/segments/")
EXCHANGE_THEMES: tuple[tuple[ThemeStep, ...], ...] = (
    (_LATE, _MEMBER),
    (_LATE, _MEMBER, _MEMBER_AGAIN),
    (_LATE, _RESUME),
    (_LATE, _RESUME, _AGAIN),
    (_LATE, _MEMBER, _RESUME),
    (_MEMBER, _MEMBER_AGAIN, _MEMBER_AGAIN),
    (_SEGMENT, _MEMBER),
    (_LATE, _SEGMENT, _RESUME),
    (_MEMBER, _SEGMENT_READ),
    (_LATE, _MEMBER, _SEGMENT_READ, _RESUME),
    (_LATE, _LATE, _LATE),
    (_LATE, ThemeStep(_ENDS, ("commit", "complete")), _AGAIN),
)

_RECOVERS = ("recover",)
_PATIENT_S = 24.0
"""As `faults.PATIENCE_S`, where something has to be recovered from first."""
_LOST = ThemeStep(_MEMBER.kinds, _ROUND, "rows")
_ENDED = ThemeStep(_ENDS, _ROUND, "rows")
_AT_RECOVERY = ThemeStep(_MEMBER.kinds, _RECOVERS)
_STARTS_AT_RECOVERY = ThemeStep(_ENDS, _RECOVERS)
_IN_CHECKPOINT = ThemeStep((*_MEMBER.kinds, *_ENDS), _ROUND[1:], "recovering")
"""In a checkpoint that is taken while rows are restored."""
_DISK = ThemeStep(DISK, _RECOVERS, times=(1, 1, 2, 6))
_DISK_LATER = ThemeStep(("disk slow", "disk fails", "disk damaged"), _ROUND[1:], "recovering")
_DAMAGE = ThemeStep(ROWS, _ROUND, "rows")
_READ_BACK = ThemeStep(("store fails", "store slow", "crash in store"), _RECOVERS, call="/segments/")
RECOVERY_THEMES: tuple[tuple[ThemeStep, ...], ...] = (
    (_LATE, _LOST, _AT_RECOVERY),
    (_LATE, _LOST, _AT_RECOVERY, _AT_RECOVERY),
    (_LATE, _LOST, _IN_CHECKPOINT),
    (_LATE, _LOST, _IN_CHECKPOINT, _AT_RECOVERY),
    (_LATE, _ENDED, _STARTS_AT_RECOVERY),
    (_LATE, _ENDED, _IN_CHECKPOINT, _STARTS_AT_RECOVERY),
    (_LATE, ThemeStep(("rescale",), _ROUND, "rows"), ThemeStep(("rescale",), _RECOVERS), _IN_CHECKPOINT),
    (_LATE, _LOST, _DISK),
    (_LATE, _ENDED, _DISK, _AT_RECOVERY),
    (_LATE, _LOST, _DISK_LATER),
    (_LATE, _LOST, _DISK_LATER, _AT_RECOVERY),
    (_LATE, _LOST, _READ_BACK),
    (_LATE, _DAMAGE, _LOST),
    (_LATE, _DAMAGE, _ENDED),
    (_LATE, _LOST, ThemeStep(ROWS, ("launch", "recover")), _AT_RECOVERY),
    (_LATE, _LOST, ThemeStep(("channel slow", "credit late", "channel stalled"), _RECOVERS), _IN_CHECKPOINT),
)


_CHANGED = ThemeStep(BUCKETS[:1], (*_ROUND, "open", "lease", "launch", "commit", "idle"))
_CHANGED_EARLY = ThemeStep(BUCKETS[:1], ("open", "lease", "launch"))
"""Splits are enumerated by then, and no subtask reads them."""
_CHANGED_AWAY = ThemeStep(BUCKETS[1:], _ROUND, "checkpoint")
"""The round's checkpoint waits, and knows nothing of it."""
_CHANGED_IN_OPENING = ThemeStep(("source slow",), ("open",), amid=BUCKETS[:1], call="buckets", brief=True)
"""The source has described the table, and is about to list its buckets."""
BUCKET_THEMES: tuple[tuple[ThemeStep, ...], ...] = (
    (_CHANGED,),
    (_CHANGED, _RESUME),
    (_CHANGED_EARLY, _RESUME),
    (_CHANGED_AWAY,),
    (_CHANGED_AWAY, _AGAIN),
    (_CHANGED_AWAY, _CHANGED_AWAY),
    (ThemeStep(BUCKETS, _ROUND, "stepped"), _RESUME),
    (_RESUME, ThemeStep(BUCKETS, (*_ROUND, "open", "launch"), "restored")),
    (_CHANGED_IN_OPENING,),
    (_RESUME, _CHANGED_IN_OPENING),
    (_CHANGED_IN_OPENING, _CHANGED),
    (_UNSURE, ThemeStep(BUCKETS, ("commit", "complete", "report"))),
)


def bucket_faults(chance: Random) -> list[Fault]:
    """Draw faults for a run in which counts of buckets change, besides its others.

    Args:
        chance: of the seed.
    """
    found = _of_theme(chance, chance.choice(BUCKET_THEMES)) if chance.random() < 0.8 else []
    return found + [_any(chance, BUCKETS) for _ in range(chance.choice((0, 0, 1, 2) if found else (1, 2)))]


def recovery_faults(chance: Random) -> list[Fault]:
    """Draw faults for a run that takes checkpoints during recoveries, besides its others.

    Args:
        chance: of the seed.
    """
    found = _of_theme(chance, chance.choice(RECOVERY_THEMES))
    found += (Fault(*draw_at_recovery(chance)) for _ in range(chance.choice((0, 0, 1, 2))))
    return [replace(fault, patience=_PATIENT_S) for fault in found]


def faults(chance: Random, aim: tuple[str, str] | None) -> list[Fault]:
    """Draw a run's faults: those of a theme, and some more of a few kinds, so that combinations get deep.

    Args:
        chance: of the seed.
        aim: kind and step of a fault that has to be among them, None for none.
    """
    found = [] if aim is None else [Fault(*aim)]
    if chance.random() < 0.75:
        theme = chance.choice(THEMES)
        found += _of_theme(chance, theme)
    kinds = COMMON if chance.random() < 0.5 else chance.sample(COMMON, chance.randint(1, 3))
    return found + [_any(chance, kinds) for _ in range(chance.choice((0, 1, 1, 2, 3, 4) if found else (1, 2, 3, 5)))]


def exchange_faults(chance: Random) -> list[Fault]:
    """Draw faults for a run with an exchange, besides its others.

    Args:
        chance: of the seed.
    """
    found = _of_theme(chance, chance.choice(EXCHANGE_THEMES)) if chance.random() < 0.7 else []
    return found + [_any(chance, EXCHANGE) for _ in range(chance.choice((0, 1, 1, 2)))]


def _of_theme(chance: Random, theme: tuple[ThemeStep, ...]) -> list[Fault]:
    return [
        Fault(chance.choice(beat.kinds), chance.choice(beat.steps), 0.0, needs=beat.needs,
              times=chance.choice(beat.times), amid=beat.amid, call=beat.call, brief=beat.brief)
        for beat in theme
    ]  # fmt: skip


def _any(chance: Random, kinds: tuple[str, ...] | list[str]) -> Fault:
    kind, step = draw(chance, kinds)
    after = 0.0 if step == "start" or chance.random() < 0.5 else chance.random() * 10.0
    needs = chance.choice(NEEDS) if step in _DEEP and chance.random() < 0.5 else ""
    times = chance.choice((1, 1, 2, 4)) if kind.endswith((" fails", " unknown", " conflict")) else 1
    return Fault(kind, step, after, needs=needs, times=times)
