"""What a checkpoint has still to read is held: through outages, clean-ups meanwhile and stops in mid-round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.coordinator.checkpoints.restorer import Restorer
from lakeward.coordinator.effects.lease import LeaseProtection
from lakeward.machines.leases.state import TableLease
from lakeward_simulator.scenario import run_seed

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(80)


def _tell_nothing(protection: LeaseProtection) -> None:
    list(protection._checkpoints.changed_needs())


def _read_nothing_at_the_start(*_: object) -> None:
    pass


def _end_every_need(table: TableLease, buckets: frozenset[object], need: object) -> TableLease:
    del need
    return table.end_all_needs(buckets)  # type: ignore[arg-type] # buckets, as `end_need` has them


MUTANTS: dict[str, tuple[type, str, Callable[..., object]]] = {
    "the lease is told nothing of checkpoints": (LeaseProtection, "hold_checkpoints", _tell_nothing),
    "checkpoints are not read at the start": (Restorer, "check_again", _read_nothing_at_the_start),
    "the end of a round lets its checkpoint's snapshots go": (TableLease, "end_need", _end_every_need),
}


@pytest.mark.parametrize(
    ("target", "name", "wrong"), [pytest.param(*wrong, id=name) for name, wrong in MUTANTS.items()]
)
def test_the_simulator_sees_that(
    monkeypatch: pytest.MonkeyPatch, target: type, name: str, wrong: Callable[..., object]
) -> None:
    monkeypatch.setattr(target, name, wrong)

    assert any("has still to read snapshot" in line for seed in SEEDS for line in run_seed(seed).failures)


@pytest.mark.parametrize("seed", [118, 443])
def test_an_overtaken_start_lets_go_of_nothing_before_its_successor_holds_it(seed: int) -> None:
    assert run_seed(seed).failures == []


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(2026112280612, id="a checkpoint that is whole too late is none to the start that took over"),
    ],
)
def test_what_may_be_let_go_is_no_failure(seed: int) -> None:
    assert run_seed(seed).failures == []
