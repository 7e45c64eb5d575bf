"""What a run is about: some of its faults are drawn from a theme, aimed at a window where much has been missed.

Faults drawn one by one rarely meet: most rounds were over before a second one struck, hardly any was gone on with in
the middle of a split, and next to no answer came after its caller had given up. A theme puts together what has to meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward_simulator.cells import draw
from lakeward_simulator.faults import KINDS, NEEDS, Fault

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


def faults(chance: Random, aim: tuple[str, str] | None) -> list[Fault]:
    """Draw a run's faults: those of a theme, and some more of a few kinds, so that combinations get deep.

    Args:
        chance: of the seed.
        aim: kind and step of a fault that has to be among them, None for none.
    """
    found = [] if aim is None else [Fault(*aim)]
    if chance.random() < 0.75:
        theme = chance.choice(THEMES)
        found += [
            Fault(chance.choice(beat.kinds), chance.choice(beat.steps), 0.0, needs=beat.needs,
                  times=chance.choice(beat.times), amid=beat.amid, call=beat.call)
            for beat in theme
        ]  # fmt: skip
    kinds = KINDS if chance.random() < 0.5 else chance.sample(KINDS, chance.randint(1, 3))
    return found + [_any(chance, kinds) for _ in range(chance.choice((0, 1, 1, 2, 3, 4) if found else (1, 2, 3, 5)))]


def _any(chance: Random, kinds: tuple[str, ...] | list[str]) -> Fault:
    kind, step = draw(chance, kinds)
    after = 0.0 if step == "start" or chance.random() < 0.5 else chance.random() * 10.0
    needs = chance.choice(NEEDS) if step in _DEEP and chance.random() < 0.5 else ""
    times = chance.choice((1, 1, 2, 4)) if kind.endswith((" fails", " unknown", " conflict")) else 1
    return Fault(kind, step, after, needs=needs, times=times)
