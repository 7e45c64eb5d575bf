"""Decides whether a round gathers the rows of all buckets in the files of their lake partition.

An exchange divides rows of an append-only table by partition and bucket, so that many subtasks share the work of one
partition. Each of them writes a file to it, however few rows it has. Where those files would be small, rows are divided
by partition alone, and one subtask writes one file. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.splits import LogSplit

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.coordinator.rounds.context import RoundContext
    from lakeward.coordinator.rounds.layout import LakeLayout
    from lakeward.model.checkpoints import RoundSnapshot

SMALL = 1 / 8
"""Share of the target size below which a file counts as small."""
_TEXT_BYTES = 64
"""What a value of no fixed width is taken to have, as long as no file of the table says more."""


def layout_of(context: RoundContext, restored: RoundSnapshot | None) -> LakeLayout:
    """Return the layout of a round, which gathers buckets where they are small; as it was begun, if it goes on."""
    layout = context.layout
    gathers = layout.may_gather and _has_small_buckets(context) if restored is None else restored.gathered
    return layout.gathered() if gathers else layout


def _has_small_buckets(context: RoundContext) -> bool:
    """Return whether the mean bucket has fewer bytes than a small file, even if its rows are all of one partition.

    All of them together have less than a file of the target size then: so much, one subtask writes in little time.
    """
    target, row_bytes = context.head.target_file_bytes, context.head.row_bytes
    if target is None:
        return False
    splits = [split for split in context.enumeration.splits if isinstance(split, LogSplit)]
    buckets = len({split.bucket.bucket for split in splits})
    rows = sum(split.stop - split.start for split in splits)
    expected = rows * (_width(context.table.schema) if row_bytes is None else row_bytes)
    return expected < min(buckets * SMALL, 1) * target


def _width(schema: pa.Schema) -> float:
    """Return about how many bytes a row has."""
    return float(sum(_value_bytes(field.type) for field in schema))


def _value_bytes(kind: pa.DataType) -> float:
    try:
        return float(kind.bit_width) / 8
    except ValueError:  # of no fixed width
        return _TEXT_BYTES
