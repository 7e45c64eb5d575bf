"""What a round's job is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.model.backoff import NO_PAUSES, RetryPauses

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.rounds.checkpoints import CheckpointPlan
    from lakeward.machines.splits import Enumeration
    from lakeward.model.events import Deploy
    from lakeward.model.jobs import JobSpec
    from lakeward.model.settings import CheckpointSettings, LakeSettings


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """The settings of a round with an exchange."""

    lake: LakeSettings
    checkpoint: CheckpointSettings
    by_bucket: bool
    """See `LakeLayout.route_by_bucket`."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job needs. `deploy` makes the Deploy event of an attempt number; `limit` is the most launches."""

    round_name: str
    enumeration: Enumeration
    deploy: Callable[[int], Deploy]
    spec: Callable[[int, int], JobSpec]
    """Makes the spec of a launch from its number and its count of subtasks."""
    slots: int
    """How many subtasks the first launch may have."""
    limit: int
    silence_s: float
    reconnect_within_s: float
    """Seconds in which a subtask whose connection closed may come back; then its splits are read by others."""
    checkpoints: CheckpointPlan
    restored: CheckpointContents | None = None
    retries: RetryPauses = NO_PAUSES
    """Before the next launch, by the number of launches so far; within a launch before the next try of a split."""
    exchange: ExchangePlan | None = None
    """What the exchange of its rows needs; None: each subtask writes what it reads."""
    commit_every_s: float | None = None
    """Seconds between two commits of the round while it goes on; None for one commit at its end."""
