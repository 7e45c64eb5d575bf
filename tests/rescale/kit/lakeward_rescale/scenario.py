"""What happens in a run: all of it follows from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from random import Random

Killed = Literal["subtasks", "service"]
When = Literal["checkpoint", "restore"]
Instant = Literal["launched", "deployed", "restoring", "connected", "checkpoint"]
TABLES = ("events", "orders")
_MOST = 7


@dataclass(frozen=True, slots=True)
class Failure:
    """One kill. In a restore it comes some time after an instant of the launch that restores."""

    killed: Killed
    when: When
    instant: Instant
    after_s: float
    share: float
    """Of the subtasks, at least one."""
    linger_s: float
    """Seconds for which subtasks outlive a service that is killed."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run. Seconds where a name ends in `_s`, bytes where it ends in `_bytes`."""

    seed: int
    rows: int
    buckets: int
    sizes: dict[str, tuple[int, ...]]
    """By table: the subtasks of its launches before the first failure, after it, after the second one ..."""
    failures: tuple[Failure, ...]
    snapshots: bool
    """Whether a part of the keyed table is read from KV snapshots."""
    commit_every_s: float
    interval_s: float
    aligned_timeout_s: float
    slow_s: float
    """About how long one subtask alone would write a table's rows."""
    window_bytes: int
    channel_bytes: int
    gathered_rows: int
    divided_bytes: int
    """Of rows that a writer takes before it divides them among partitions."""
    open_files: int
    open_rows_bytes: int
    file_bytes: int
    during_recovery: bool
    """Whether checkpoints are taken while restored rows are still written."""
    mistake: str = ""
    """Made on purpose in all subtasks, see `mistakes`; empty: none."""

    @classmethod
    def of(cls, seed: int) -> Scenario:
        """Draw it."""
        draw = random.Random(seed)  # noqa: S311 - a test's choice
        failures = _failures(draw)
        window = draw.choice((500, 1000, 2000))
        return cls(
            seed=seed,
            rows=draw.randrange(2_500, 5_000),
            buckets=draw.randrange(3, 9),
            sizes=_sizes(draw, failures),
            failures=failures,
            snapshots=draw.random() < 0.4,
            commit_every_s=draw.choice((0.0, 0.0, 0.0, 2.0)),
            interval_s=draw.choice((0.05, 0.1, 0.2)),
            aligned_timeout_s=draw.choice((0.0, 0.0, 0.02, 0.1)),
            slow_s=draw.uniform(2.5, 5.0),
            window_bytes=window,
            channel_bytes=draw.choice((window, 2 * window)),
            gathered_rows=draw.choice((5, 10, 25)),
            divided_bytes=draw.choice((1, 1, 3000)),
            open_files=draw.choice((2, 8, 64)),
            open_rows_bytes=draw.choice((20_000, 1 << 28, 1 << 28)),
            file_bytes=draw.choice((20_000, 1 << 27)),
            during_recovery=draw.random() < 0.5,
        )


def _failures(draw: Random) -> tuple[Failure, ...]:
    """Draw a failure after a checkpoint, one inside the restore from it, and often one more of either kind."""
    first = _failure(draw, "checkpoint")
    inside = _failure(draw, "restore")
    more = draw.choice(((), (_failure(draw, "checkpoint"),), (_failure(draw, "restore"),)))
    return (first, inside, *more)


def _failure(draw: Random, when: When) -> Failure:
    instants: tuple[Instant, ...] = ("launched", "deployed", "restoring", "connected", "checkpoint")
    return Failure(
        killed=draw.choice(("subtasks", "subtasks", "service")),
        when=when,
        instant=draw.choice(instants),
        after_s=draw.choice((0.0, 0.0, draw.uniform(0.0, 0.4))),
        share=draw.choice((0.0, draw.random(), 1.0)),
        linger_s=draw.choice((0.0, 0.0, draw.uniform(0.0, 1.0))),
    )


def _sizes(draw: Random, failures: tuple[Failure, ...]) -> dict[str, tuple[int, ...]]:
    """Draw the sizes of launches; mostly 7 to 2 for one table, and 2 to 7 for the other at the same time.

    None is that of the launch whose checkpoint it is restored from: a launch that is killed in its restore has none.
    """
    every, found = range(1, _MOST + 1), {}
    opposite = draw.random() < 0.6
    for number, table in enumerate(TABLES):
        sizes = [(_MOST, 2)[number] if opposite else draw.choice(every)]
        of = sizes[0]
        for failure in failures:
            of = sizes[-1] if failure.when == "checkpoint" else of
            other = (2 if of == _MOST else _MOST) if opposite else draw.choice(every)
            sizes.append(other if other != of and draw.random() < 0.8 else draw.choice([s for s in every if s != of]))
        found[table] = tuple(sizes)
    return found
