"""Keys as numbers: folding and looking up agree with plain Python, whatever the types."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward_lake_iceberg.keys import KeyIndex

PAIRS = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from(["", "a", "ab", "ä"]), st.booleans()), min_size=1)


def _table(keys: list[tuple[int, str, bool]], columns: int) -> pa.Table:
    arrays = [
        pa.array([key[0] for key in keys], pa.int64()),
        pa.array([key[1] for key in keys], pa.string()),
        pa.array([key[2] for key in keys], pa.bool_()),
    ]
    return pa.table(arrays[:columns], names=["a", "b", "c"][:columns])


@settings(deadline=None)
@given(PAIRS, st.integers(1, 3))
def test_the_last_row_of_each_key_is_kept_in_order(keys: list[tuple[int, str, bool]], columns: int) -> None:
    last = {key[:columns]: row for row, key in enumerate(keys)}
    assert KeyIndex(_table(keys, columns)).last_rows().tolist() == sorted(last.values())


@settings(deadline=None)
@given(PAIRS, PAIRS, st.integers(1, 3))
def test_exactly_the_known_keys_are_found(
    keys: list[tuple[int, str, bool]], others: list[tuple[int, str, bool]], columns: int
) -> None:
    index = KeyIndex(_table(keys, columns))
    found = index.contains(_table(others, columns).combine_chunks().to_batches()[0].columns)
    known = {key[:columns] for key in keys}
    assert found.tolist() == [other[:columns] in known for other in others]


def test_dates_are_bounded_by_what_iceberg_stores() -> None:
    index = KeyIndex(pa.table([pa.array([3, -2], pa.int32()).cast(pa.date32())], names=["day"]))
    assert index.raw_bounds() == (-2, 3)
