"""What checkpoints hold of spills: noted by subtasks, and a point of the driver once such a checkpoint has completed.

`noted/spilled` gets a line for each part of a checkpoint: the checkpoint, the subtask, and how many bytes of its spill
the part holds (0 of a recovery whose rest was in memory). `completed-spilled.<table>`: a checkpoint happened of which
these are not 0 in all; `noted/recovered.<table>` has a line for each such checkpoint.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.subtask.exchange.recovering import RowsRecovery
from lakeward.subtask.fan_out import writer
from lakeward_faulty import exchange
from lakeward_faulty.points import FAULTS, note, reached
from lakeward_faulty.source import FaultySourcePlugin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.checkpoints import CheckpointRef, LeaseCopy, PartFile, RoundSnapshot, SubtaskSnapshot
    from lakeward.ports import Clock
    from lakeward.subtask.exchange.spilled_rows import RecoveredRest
    from lakeward_faulty.source import FaultySource
    from lakeward_source_embedded.plugin import EmbeddedOptions

SPILLED, RECOVERED = "spilled", "recovered"
_keep, _write_part = RowsRecovery.rest, CheckpointFiles.write_part
_held: dict[int, int] = {}
"""Of this Python worker, which runs one task at a time: by checkpoint."""


def watch_spills() -> None:
    """Let the subtasks of this process note what their parts of checkpoints hold.

    Each batch goes to the lake at once, which the point `each-write` makes slow, and what is restored is spilled in
    pieces of a few rows: so a recovery lasts.
    """
    writer.GATHERED_BYTES = writer.HELD_BYTES = 1
    exchange._LIMITS = replace(exchange._LIMITS, restored_bytes=500)
    RowsRecovery.rest = keep  # type: ignore[method-assign]
    CheckpointFiles.write_part = write_part  # type: ignore[method-assign]


def keep(self: RowsRecovery, checkpoint: int) -> RecoveredRest | None:
    """Remember how much it is."""
    rest = _keep(self, checkpoint)
    if rest is not None:
        _held[checkpoint] = rest.spill_bytes
    return rest


def write_part(self: CheckpointFiles, ref: CheckpointRef, snapshot: SubtaskSnapshot) -> PartFile:
    """Note it before the driver hears of the part."""
    part = _write_part(self, ref, snapshot)
    held = _held.pop(ref.number, None)
    if held is not None:
        note(SPILLED, f"{ref} {snapshot.subtask} {held}")
    return part


class SpillsPlugin(FaultySourcePlugin):
    """The source `embedded-spills`: the faulty one, whose driver has that point."""

    def open(self, options: EmbeddedOptions, clock: Clock) -> FaultySource:
        """Open it."""
        source = super().open(options, clock)
        CheckpointFiles.complete = complete  # type: ignore[method-assign]
        return source


def complete(
    self: CheckpointFiles,
    ref: CheckpointRef,
    coordinator: RoundSnapshot,
    parts: Sequence[PartFile],
    lease: LeaseCopy | None,
) -> int:
    """Complete it, and say so."""
    from lakeward_faulty.driver import complete as faulty_complete  # noqa: PLC0415 - workers need nothing of the driver

    size = faulty_complete(self, ref, coordinator, parts, lease)
    table, spilled = coordinator.path.table, spilled_bytes(Path(os.environ[FAULTS]), str(ref))
    if spilled:
        note(f"{RECOVERED}.{table}", f"{ref} {spilled}")
        reached(f"completed-spilled.{table}")
    return size


def spilled_bytes(faults: Path, ref: str) -> int:
    """Return how many bytes of spills the parts of a checkpoint hold.

    Args:
        faults: the directory of the points.
        ref: the checkpoint.
    """
    return sum(int(line.split()[2]) for line in noted(faults, SPILLED) if line.startswith(f"{ref} "))


def noted(faults: Path, name: str) -> list[str]:
    """Return the lines that were noted; see `lakeward_faulty.points.note`."""
    file = faults / "noted" / name
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
