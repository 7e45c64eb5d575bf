"""The driver of machines: one event at a time, each command with its cause, the last steps in an error."""

from __future__ import annotations

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.driver import MachineDriver, Step
from lakeward.machines.machine import Machine


class Doubling(Machine[int, str]):
    """Takes numbers above zero and commands `a` and `b` for each."""

    def take(self, event: int) -> tuple[str, ...]:
        """Refuse what is not above zero."""
        if event <= 0:
            machine = "doubling"
            raise IllegalEventError(machine, "open", event)
        return (f"a{event}", f"b{event}")


def test_a_command_is_executed_with_the_event_that_caused_it() -> None:
    executed: list[tuple[str, int]] = []
    driver = MachineDriver(Doubling(), lambda command, event: executed.append((command, event)))
    driver.post(1)
    driver.post(2)
    assert executed == [("a1", 1), ("b1", 1), ("a2", 2), ("b2", 2)]


def test_an_event_posted_by_a_command_is_stepped_after_the_other_commands_of_the_step() -> None:
    executed: list[str] = []

    def execute(command: str, event: int) -> None:
        executed.append(command)
        if command.startswith("a") and event < 3:
            driver.post(event + 1)

    driver = MachineDriver(Doubling(), execute)
    driver.post(1)
    assert executed == ["a1", "b1", "a2", "b2", "a3", "b3"]


def test_no_event_is_stepped_after_close_and_the_commands_of_the_last_step_are_executed() -> None:
    executed: list[str] = []

    def execute(command: str, event: int) -> None:
        executed.append(command)
        driver.post(event + 1)
        driver.close()

    driver = MachineDriver(Doubling(), execute)
    driver.post(1)
    driver.post(2)
    assert executed == ["a1", "b1"]


def test_an_illegal_event_tells_the_last_steps_and_no_older_ones() -> None:
    driver = MachineDriver(Doubling(), lambda command, event: None, kept=2)
    for event in (1, 2, 3):
        driver.post(event)
    with pytest.raises(IllegalEventError, match="'doubling' in state open") as raised:
        driver.post(0)
    assert raised.value.__notes__ == [
        "the last 2 steps before, the oldest first:\n  2 -> 'a2', 'b2'\n  3 -> 'a3', 'b3'"
    ]


def test_an_event_that_is_illegal_is_no_step_and_the_next_one_is_stepped() -> None:
    driver = MachineDriver(Doubling(), lambda command, event: None)
    with pytest.raises(IllegalEventError):
        driver.post(-1)
    driver.post(1)
    assert driver.steps == (Step(1, ("a1", "b1")),)


def test_an_error_of_a_command_ends_its_step_and_queued_events_wait_for_the_next_post() -> None:
    executed: list[str] = []

    def execute(command: str, event: int) -> None:
        executed.append(command)
        if command == "a1":
            driver.post(2)
            raise ValueError(command)

    driver = MachineDriver(Doubling(), execute)
    with pytest.raises(ValueError, match="a1"):
        driver.post(1)
    assert executed == ["a1"]
    driver.post(3)
    assert executed == ["a1", "a2", "b2", "a3", "b3"]


def test_each_step_is_seen_before_its_commands_are_executed() -> None:
    seen: list[object] = []
    driver = MachineDriver(Doubling(), lambda command, event: seen.append(command), on_step=seen.append)
    driver.post(1)
    assert seen == [Step(1, ("a1", "b1")), "a1", "b1"]


def test_a_step_too_long_to_read_is_cut_in_the_notes() -> None:
    assert len(str(Step("x" * 10_000, ()))) < 600
