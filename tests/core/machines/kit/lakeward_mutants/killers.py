"""Which named test kills which mutant of what lies around the machines: each has one, whatever seeds find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_mutants import queues, recovery_shells, seams, shells, wiring

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

_CASES = "tests/simulator/test_named_cases.py::test_"
_RESCALED = "tests/simulator/test_simulated_rescaling.py::test_"
_FOUND = "tests/simulator/test_found_bugs.py::test_"
_BOOKS = "tests/core/coordinator/test_restored_rounds.py::test_"
_JOB = "tests/core/coordinator/test_round_job.py::test_"
_ROUNDS = "tests/core/coordinator/test_checkpoints.py::test_"
_RESTART = "tests/core/coordinator/test_restart.py::test_"
_OVERTAKEN = "tests/core/coordinator/test_overtaken.py::test_"
_ONE = "tests/core/coordinator/test_one_round_a_table.py::test_"
_WORDS = "tests/core/subtask/test_checkpoint_messages.py::test_"
_WORK = "tests/core/subtask/test_split_work.py::test_"
_RECOVERY = "tests/core/subtask/test_exchange_recovery.py::test_"
_SPILLED = "tests/core/subtask/test_spilled_rows.py::test_"
_DRAINED = f"{_RECOVERY}84_what_is_checkpointed_while_it_recovers_is_restored_whole[live rows-7-2-3-append]"
_SHARED = (
    "tests/core/subtask/test_exchange_shares.py::test_"
    "84_rows_that_are_restored_through_rescales_each_in_a_recovery_have_one_owner"
)
_FENCED = f"{_CASES}a_fenced_committer_that_wakes_up_commits_nothing"
_ZOMBIE = f"{_CASES}a_committer_that_wakes_up_before_its_successor_has_committed_commits_nothing_either"
_STEP = f"{_CASES}what_a_step_committed_is_not_read_again"
_UNKNOWN = f"{_CASES}a_step_of_unknown_outcome_is_not_taken_for_the_one_before"
_EARLY = f"{_CASES}no_snapshot_is_given_up_before_the_checkpoint_that_holds_its_end_has_completed"
_TWICE = f"{_CASES}a_file_is_not_committed_twice_after_a_change_of_coordinator"
_SLOW = f"{_FOUND}a_commit_whose_journal_is_slow_names_no_file_that_the_next_round_swept"
_ADOPTED = f"{_FOUND}adopted_files_stay_when_their_table_was_committed_and_is_created_anew"
_REPLACED = f"{_JOB}what_a_replaced_attempt_has_finished_counts_neither_before_nor_after_its_successors_finish"
_NAMED = f"{_BOOKS}files_that_a_split_half_done_or_a_word_to_be_sent_again_names_are_not_deleted_for_a_late_finish"
_CURRENT = f"{_ONE}a_round_that_is_over_says_nothing_more_and_a_restored_one_needs_what_its_checkpoint_has_to_read"
_ALONE = "tests/core/coordinator/test_rounds_alone.py::test_"
_LEASES = "tests/core/coordinator/test_lease_driver.py::test_"
_SNAPSHOTS = "tests/core/coordinator/test_checkpoint_snapshots.py::test_"
_SUBTASKS = "tests/core/subtask/test_exchange_subtasks.py::test_"
_MARKER = f"{_RECOVERY}a_marker_that_is_missing_fails_the_checkpoint_under_its_own_reason_and_is_counted[append]"
_DECLINES = f"{_JOB}only_a_subtask_that_is_not_ready_declines_a_checkpoint_without_its_counting[marker missing-True]"
KILLERS: Mapping[Callable[[pytest.MonkeyPatch], None], str] = {
    wiring.acquires_under_an_id_that_was_not_written: f"{_LEASES}nothing_is_acquired_that_no_later_start_could_know",
    wiring.ignores_another_coordinator: f"{_LEASES}another_coordinator_of_the_source_is_asked_for_what_is_leased",
    wiring.uses_no_copy_of_the_lease: (
        f"{_SNAPSHOTS}a_start_that_finds_no_state_file_knows_the_lease_from_the_newest_checkpoint"
    ),
    wiring.holds_nothing_for_a_checkpoint_that_is_being_written: (
        f"{_SNAPSHOTS}a_round_that_fails_while_a_checkpoint_is_being_stored_goes_on_from_it"
    ),
    wiring.opens_for_the_end_of_any_checkpoint: f"{_WORDS}the_end_of_an_older_checkpoint_lets_nothing_out[end0]",
    wiring.opens_the_coordinators_gateway_for_the_end_of_any_checkpoint: (
        f"{_JOB}the_end_of_an_older_checkpoint_lets_nothing_out_to_a_subtask"
    ),
    wiring.takes_sent_for_acknowledged: (
        f"{_JOB}a_cut_is_triggered_once_the_subtask_has_acknowledged_what_was_sent_to_it"
    ),
    wiring.sends_a_subtask_nothing_again_after_a_reconnect: (
        f"{_JOB}a_subtask_that_comes_back_over_another_connection_is_sent_again_what_it_has_not_acknowledged"
    ),
    wiring.starts_open_in_the_midst_of_a_checkpoint: (
        f"{_WORDS}a_subtask_that_comes_in_the_midst_of_a_checkpoint_holds_its_finishes_for_it"
    ),
    wiring.starts_the_coordinators_gateway_open_in_the_midst_of_a_checkpoint: (
        f"{_JOB}a_subtask_that_comes_in_the_midst_of_a_checkpoint_is_held_off_and_told_so"
    ),
    wiring.commits_a_cut_with_rows_in_channels: f"{_BOOKS}a_cut_with_rows_in_channels_alone_is_not_committed",
    wiring.counts_no_missing_marker: _MARKER,
    wiring.takes_a_missing_marker_for_not_ready: _MARKER,
    wiring.counts_no_decline: _DECLINES,
    wiring.forgets_what_is_held_at_the_own_snapshot: (
        f"{_SUBTASKS}a_split_that_ends_between_the_close_and_the_own_snapshot_is_in_the_part"
    ),
    queues.commits_though_a_step_is_under_way: (
        f"{_ALONE}the_last_commit_waits_for_a_step_that_is_under_way_and_leaves_out_what_that_has_committed"
    ),
    queues.launches_a_round_that_is_over: (
        f"{_ALONE}a_round_that_ends_while_its_job_is_planned_launches_nothing_and_is_cleaned_up_then"
    ),
    queues.leaves_the_launch_of_a_round_that_is_over: (
        f"{_ALONE}a_round_that_ends_cancels_its_launch_and_is_cleaned_up_once_that_is_over"
    ),
    queues.loses_the_answer_of_the_store: (
        "tests/core/coordinator/test_gang.py"
        "::test_the_next_launch_waits_for_the_stores_answer_and_goes_on_from_that_checkpoint"
    ),
    queues.hears_what_older_rounds_say: f"{_ALONE}what_a_round_said_before_it_was_over_is_no_matter_of_the_next_one",
    shells.drops_the_fence_check_of_a_commit: _FENCED,
    shells.writes_no_journal: _FENCED,
    shells.drops_withheld_finishes_at_a_restore: _NAMED,
    shells.ignores_positions_of_the_last_checkpoint: _STEP,
    shells.leaves_files_of_lost_attempts: (
        f"{_FOUND}a_split_that_is_whole_behind_one_that_a_cut_stopped_leaves_no_files"
    ),
    shells.releases_before_the_checkpoint_completes: _EARLY,
    shells.commits_files_of_earlier_steps_again: _STEP,
    shells.counts_attempts_from_1_after_a_restore: f"{_BOOKS}attempts_of_a_fresh_round_count_from_1",
    shells.forgets_what_a_cut_split_had_done: (
        f"{_BOOKS}what_had_been_done_of_a_split_that_a_cut_leaves_out_is_committed"
    ),
    shells.sweeps_what_was_set_aside: _ADOPTED,
    shells.trusts_checkpoints_whose_files_are_gone: (
        f"{_ROUNDS}a_checkpoint_whose_files_were_swept_before_it_completed_is_dropped"
    ),
    shells.believes_every_finish: "tests/core/machines/test_gateway_scenarios.py::test_an_origin_counts_once",
    shells.sweeps_files_that_a_checkpoint_names: _ADOPTED,
    shells.leaves_out_what_was_blocked: _NAMED,
    shells.never_counts_steps: _UNKNOWN,
    shells.sweeps_what_a_later_start_writes: f"{_OVERTAKEN}files_of_a_later_start_are_not_swept",
    shells.drops_checkpoints_of_a_later_start: f"{_OVERTAKEN}checkpoints_of_a_later_start_are_not_dropped",
    shells.never_asks_who_took_over: f"{_RESTART}an_overtaken_start_ends_though_it_can_do_nothing",
    shells.leaves_out_what_ended_after_the_trigger: (
        f"{_WORDS}a_split_that_ends_between_the_trigger_and_its_part_is_in_the_part_as_done"
    ),
    shells.keeps_tables_that_nobody_knows_of: f"{_RESTART}a_table_handed_to_an_overtaken_start_is_given_back",
    seams.counts_no_result_that_nobody_sends_again: (
        f"{_BOOKS}a_word_to_be_sent_again_counts_with_its_files_once_the_attempt_that_had_it_is_gone"
    ),
    seams.forgets_that_buckets_are_gathered: (
        "tests/core/coordinator/test_gathering.py::test_a_checkpoint_says_whether_its_round_gathers[1]"
    ),
    seams.protects_what_the_store_lists_alone: (
        "tests/core/coordinator/test_restorer_steps.py"
        "::test_files_of_a_checkpoint_that_was_gone_on_from_stay_until_a_commit_lands_though_it_is_deleted_late"
    ),
    seams.believes_the_journal_of_letters: (
        "tests/core/coordinator/test_bad_rows.py"
        "::test_letters_that_a_later_start_has_committed_are_not_again_where_a_slow_start_writes_its_journal_after_that"
    ),
    seams.releases_with_each_finish: f"{_CASES}two_coordinators_after_one_failover_tier_each_record_once",
    seams.launches_before_the_journal: f"{_CASES}offsets_that_an_old_coordinator_rewinds_are_put_right",
    seams.acknowledges_a_part_before_it_is_written: f"{_WORDS}a_part_that_the_store_refuses_is_declined",
    seams.builds_on_a_checkpoint_before_it_is_stored: _FENCED,
    seams.goes_on_one_row_late: f"{_WORK}parts_give_what_the_whole_gives",
    seams.goes_on_one_row_early: f"{_WORK}parts_give_what_the_whole_gives",
    seams.ignores_restored_positions: f"{_WORK}parts_give_what_the_whole_gives",
    seams.tells_nobody_how_far_a_split_is: _STEP,
    seams.counts_rows_that_are_in_no_file: f"{_WORK}what_is_in_a_small_open_file_counts_as_not_read",
    seams.forgets_splits_that_wait: f"{_WORDS}the_files_of_a_split_that_waits_are_in_the_part",
    seams.hears_old_attempts: _REPLACED,
    seams.adopts_files_of_stale_attempts: _REPLACED,
    seams.deletes_what_a_stale_attempt_names: _NAMED,
    seams.sends_nothing_again: (
        "tests/core/machines/test_channel.py::test_what_was_not_acknowledged_is_sent_again_in_order_and_nothing_else"
    ),
    seams.sees_no_orphans: _REPLACED,
    seams.stops_for_no_silence: (
        "tests/core/subtask/test_subtask.py::test_a_subtask_stops_whose_coordinator_answers_no_heartbeat"
    ),
    seams.looks_for_no_own_commit_when_fenced: (
        "tests/core/coordinator/test_committer.py::test_a_commit_of_unknown_outcome_that_fences_the_next_try_is_found"
    ),
    seams.commits_without_a_fresh_heartbeat: _SLOW,
    seams.deletes_what_an_unknown_commit_wrote: _UNKNOWN,
    seams.writes_no_commit_down: _SLOW,
    seams.stamps_nothing: _ZOMBIE,
    seams.commits_a_round_that_is_over: _CURRENT,
    seams.works_side_by_side: f"{_ONE}a_round_whose_commit_was_given_up_waits_for_it_before_it_is_tried_again",
    seams.sweeps_before_a_commit_is_settled: (
        f"{_OVERTAKEN}opening_a_round_deletes_nothing_of_one_whose_commit_may_still_land"
    ),
    seams.waits_for_its_own_commit: (
        f"{_OVERTAKEN}files_of_a_commit_of_unknown_outcome_are_deleted_once_a_later_commit_has_landed"
    ),
    seams.spares_no_living_round: f"{_OVERTAKEN}files_of_a_round_of_ours_whose_tasks_run_are_not_swept",
    seams.sweeps_once: f"{_OVERTAKEN}what_a_task_writes_after_a_sweep_is_swept_once_the_fence_time_is_over",
    seams.believes_that_each_task_has_ended: (
        "tests/core/coordinator/test_late_files.py"
        "::test_a_file_that_a_task_writes_after_its_round_has_failed_is_deleted_after_the_fence_time"
    ),
    seams.goes_on_from_any_checkpoint: f"{_CASES}control_state_older_than_the_lake_doubles_nothing",
    seams.goes_on_from_the_oldest_checkpoint: (
        "tests/core/coordinator/test_restorer_steps.py"
        "::test_of_several_checkpoints_the_newest_one_is_gone_on_from_and_an_older_one_where_that_is_rejected"
    ),
    seams.forgets_what_steps_have_committed: _TWICE,
    seams.acquires_nothing_for_a_restored_round: _CURRENT,
    seams.tells_no_finish_again: f"{_WORDS}a_finish_that_was_held_back_is_in_the_part_as_blocked",
    seams.looks_at_no_count_of_buckets: (
        f"{_RESCALED}a_count_that_changes_between_the_description_of_a_table_and_the_list_of_its_buckets_"
        "brings_no_row_to_the_lake[0]"
    ),
    seams.reads_new_buckets_from_their_end: (
        f"{_RESCALED}rows_of_buckets_that_come_in_the_midst_of_a_round_are_tiered[read]"
    ),
    recovery_shells.bug_1_commits_nothing: _DRAINED,
    recovery_shells.bug_1_commits_what_is_read: _DRAINED,
    recovery_shells.bug_7_sends_before_it_has_credit: (
        f"{_RECOVERY}35_nobody_sends_to_a_consumer_that_recovers_before_it_gives_credit"
    ),
    recovery_shells.bug_12_swallows_what_cannot_be_spilled: (
        f"{_RECOVERY}61_what_cannot_be_spilled_ends_the_subtask_with_that_cause_and_leaves_nothing"
    ),
    recovery_shells.bug_12_takes_an_error_for_the_end: (
        f"{_RECOVERY}76_a_spill_that_is_damaged_while_it_is_drained_ends_the_subtask_with_that_cause"
    ),
    recovery_shells.bug_14_hears_no_mark_while_it_recovers: (
        f"{_RECOVERY}15_a_checkpoint_completes_though_the_drain_stands_still"
    ),
    recovery_shells.bug_15_keeps_the_spill_of_what_has_ended: (
        f"{_RECOVERY}the_spill_goes_with_the_recovery_though_a_checkpoint_of_it_waits_to_be_stored"
    ),
    recovery_shells.bug_18_cuts_a_batch_where_a_segment_ends: (
        f"{_SPILLED}40_41_a_batch_that_lies_over_segments_comes_back_whole"
    ),
    recovery_shells.bug_19_ends_with_its_input: (
        f"{_RECOVERY}36_an_input_that_ends_before_the_recovery_finishes_nothing_early"
    ),
    recovery_shells.bug_22_knows_one_kind_of_state: _DRAINED,
    recovery_shells.bug_11_spills_though_it_is_off: (
        f"{_RECOVERY}without_the_feature_no_directory_is_touched_and_nobody_waits_for_credit"
    ),
    recovery_shells.bug_21_needs_no_unaligned_checkpoints: (
        f"{_RECOVERY}88_the_feature_is_off_where_no_checkpoint_may_be_unaligned"
    ),
    recovery_shells.restores_whole_segments: _SHARED,
    recovery_shells.counts_own_rows_alone: _SHARED,
    recovery_shells.stores_live_rows_first: (
        f"{_SPILLED}a_part_lists_what_is_left_of_restored_rows_behind_what_is_written_and_before_what_came_later"
    ),
}

COST_TIME = {
    shells.believes_every_finish: "the books of the splits refuse the second one; at the worst an attempt starts anew",
    shells.drops_checkpoints_of_a_later_start: "what was read since the last commit is read again",
    shells.keeps_tables_that_nobody_knows_of: "the source hands them out anew after its time limit",
    queues.launches_a_round_that_is_over: "what its tasks write is committed by nobody, and swept once they have ended",
    queues.leaves_the_launch_of_a_round_that_is_over: "as above",
    queues.hears_what_older_rounds_say: "the next round fails, and its table is tried again",
    seams.forgets_splits_that_wait: "a coordinator hands out one split at a time: none waits",
    seams.acquires_nothing_for_a_restored_round: "its checkpoint holds the same snapshots until the round has them",
}
"""Those that lose nothing, and why: tests find them, seeds need not."""
