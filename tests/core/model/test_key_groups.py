"""How key groups are divided among subtasks, against every group by itself."""

from __future__ import annotations

import pytest

from lakeward.model.partitioning import KEY_GROUPS, key_group_range, subtask_of


@pytest.mark.parametrize("subtasks", [*range(1, 17), 20, 21, 100, 255, KEY_GROUPS])
def test_38_ranges_of_key_groups_are_all_groups_once_and_those_of_their_owners(subtasks: int) -> None:
    ranges = [range(*key_group_range(number, subtasks)) for number in range(subtasks)]
    assert [group for one in ranges for group in one] == [*range(KEY_GROUPS)]
    assert all(subtask_of(group, subtasks) == number for number, one in enumerate(ranges) for group in one)
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_38_whatever_the_two_numbers_of_subtasks_each_group_of_an_old_one_has_one_new_owner() -> None:
    for before in range(1, 17):
        for after in range(1, 17):
            for number in range(before):
                old = {*range(*key_group_range(number, before))}
                kept = [old & {*range(*key_group_range(other, after))} for other in range(after)]
                assert sum(map(len, kept)) == len(old) == len(set().union(*kept))
