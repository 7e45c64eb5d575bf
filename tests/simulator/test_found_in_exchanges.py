"""What seeds with an exchange found in the product: each is the seed that found it."""

from __future__ import annotations

from lakeward_simulator.scenario import run_seed


def test_a_start_that_is_overtaken_while_it_counts_slots_launches_no_gang_again() -> None:
    assert run_seed(532).failures == []


def test_a_checkpoint_whose_open_rows_are_in_files_of_a_later_commit_is_not_gone_on_from() -> None:
    """A round was finished early, its commit landed without an answer, and its offsets were the checkpoint's."""
    assert run_seed(3083).failures == []


def test_a_launch_that_was_ended_misses_none_of_its_connections() -> None:
    assert run_seed(21494).failures == []


def test_a_checkpoint_that_completes_after_a_later_start_deleted_its_files_is_no_fault() -> None:
    assert run_seed(2026112303598).failures == []


def test_a_checkpoint_that_completes_after_a_later_start_deleted_its_rows_is_no_fault() -> None:
    """That start had another layout, and dropped the checkpoint before it with the rows of its open files."""
    assert run_seed(2026112302103).failures == []


def test_a_long_recovery_ends_though_a_step_is_due_all_the_while() -> None:
    """Each checkpoint was to close all files, waited for the recovery, and was not complete in time: four of these."""
    assert run_seed(2026112446387).failures == []


def test_files_of_a_commit_that_was_tried_twice_go_without_new_rows() -> None:
    """The first try had landed without an answer, and the start was killed before the source knew."""
    assert run_seed(2026112402044).failures == []


def test_a_table_does_not_go_on_from_damaged_rows_for_ever_though_nobody_hears_of_the_damage() -> None:
    """Every subtask that found it died before its word was heard, and each round went on from the same checkpoint."""
    assert run_seed(2026112302516).failures == []


def test_a_subtask_that_finishes_before_it_is_triggered_needs_no_open_gateway() -> None:
    assert run_seed(2026112426851).failures == []


def test_a_round_that_waits_for_slots_beyond_its_maximum_duration_reads_all_the_same() -> None:
    """It finished early while it waited, had read nothing, and so had the next one: nothing of the table was tiered."""
    assert run_seed(2026112477855).failures == []


def test_a_gang_of_which_an_older_task_registers_last_and_dies_does_not_wait_for_ever() -> None:
    """The newer one was refused for it, and Spark counted that as its end."""
    assert run_seed(6671).failures == []
