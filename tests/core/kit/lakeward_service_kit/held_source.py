"""A source with readers that stop in the middle: a round lasts for as long as a test wants."""

from __future__ import annotations

import json
import secrets
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.errors import SourceError
from lakeward.model.tables import OFFSET_COLUMN
from lakeward.ports import SourceBatch
from lakeward_source_embedded.plugin import EmbeddedSourcePlugin
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.model.splits import LogSplit, SnapshotSplit
    from lakeward.model.tables import TableSpec
    from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse
    from lakeward.ports import SourceReader
    from lakeward_source_embedded.store import EmbeddedStore

_PIECE_ROWS = 10
FAIL = "fail"
"""Text of the gate's file that makes readers fail where they would stop."""


class Hold:
    """Where readers of a source stop, and how many rows of KV snapshots they have read.

    For a source made of another one: `task` is what its `reader_task` gives, `reader` what its plugin's `reader` does.
    """

    def __init__(self, gate: Path, batches: int) -> None:
        """Hold nothing yet.

        Args:
            gate: readers stop for as long as this file exists.
            batches: read before a split stops.
        """
        self._tally = gate.with_name(f"rows-{secrets.token_hex(4)}")
        self._held = {"gate": str(gate), "batches": batches, "tally": str(self._tally)}

    def task(self, task: bytes) -> bytes:
        """Add to the bytes of the other source's `reader_task`."""
        return json.dumps(self._held | {"task": b64encode(task).decode()}).encode()

    def snapshot_rows(self) -> int:
        """Count the rows of KV snapshots that readers have read, and begin to count anew."""
        rows = sum(map(int, self._tally.read_text(encoding="utf-8").split())) if self._tally.exists() else 0
        self._tally.unlink(missing_ok=True)
        return rows

    @staticmethod
    def reader(task: bytes, opened: Callable[[bytes], SourceReader]) -> SourceReader:
        """Open a reader that stops.

        Args:
            task: the bytes of `task`.
            opened: opens the other source's reader from the bytes of its own task.
        """
        held = json.loads(task)
        reader = opened(b64decode(held["task"]))
        return _HeldReader(reader, Path(held["gate"]), held["batches"], Path(held["tally"]))


class HeldSource(EmbeddedSource):
    """Its readers stop after some batches of each split, for as long as a file exists."""

    def __init__(self, store: EmbeddedStore, gate: Path, batches: int) -> None:
        """Hold nothing yet.

        Args:
            store: where the tables are.
            gate: the file.
            batches: read before a split stops.
        """
        super().__init__(store)
        self._hold = Hold(gate, batches)
        self.before_heartbeat: Callable[[], None] = lambda: None

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        """See Protocol."""
        self.before_heartbeat()
        return super().heartbeat(beat)

    def snapshot_rows(self) -> int:
        """Count the rows of KV snapshots that its readers have read, and begin to count anew."""
        return self._hold.snapshot_rows()

    def reader_task(self, table: TableSpec) -> bytes:
        """See Protocol."""
        return self._hold.task(super().reader_task(table))


class HeldSourcePlugin(EmbeddedSourcePlugin):
    """See `lakeward.hooks.plugins.SourcePlugin`."""

    def reader(self, task: bytes, table: TableSpec) -> SourceReader:
        """See Protocol."""
        return Hold.reader(task, lambda own: super(HeldSourcePlugin, self).reader(own, table))


class _HeldReader:
    def __init__(self, reader: SourceReader, gate: Path, batches: int, tally: Path) -> None:
        self._reader = reader
        self._gate = gate
        self._batches = batches
        self._tally = tally

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        """See Protocol."""
        return self._hold(_in_pieces(self._reader.read_log(split)))

    def read_snapshot(self, split: SnapshotSplit, skip_rows: int = 0) -> Iterator[SourceBatch]:
        """See Protocol."""
        for batch in self._hold(_in_pieces(self._reader.read_snapshot(split, skip_rows))):
            with self._tally.open("a", encoding="utf-8") as tally:
                tally.write(f"{batch.records.num_rows}\n")
            yield batch

    def close(self) -> None:
        """See Protocol."""
        self._reader.close()

    def _hold(self, batches: Iterator[SourceBatch]) -> Iterator[SourceBatch]:
        for number, batch in enumerate(batches):
            if number >= self._batches:
                wait_until(lambda: self._gate_says() in {None, FAIL}, "the gate to open", turn_s=0.01)
                if self._gate_says() == FAIL:
                    message = "the gate says that reading fails"
                    raise SourceError(message)
            yield batch

    def _gate_says(self) -> str | None:
        """Return the text of the gate's file, None if it is not there: the test deletes it at any time."""
        try:
            return self._gate.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None


def _in_pieces(batches: Iterator[SourceBatch]) -> Iterator[SourceBatch]:
    for batch in batches:
        records = batch.records
        for start in range(0, records.num_rows, _PIECE_ROWS):
            piece = records.slice(start, _PIECE_ROWS)
            offset = piece.column(OFFSET_COLUMN)[-1].as_py()
            inner = start + _PIECE_ROWS < records.num_rows and offset >= 0  # rows of a snapshot have no offset
            yield SourceBatch(piece, offset + 1 if inner else batch.next_offset)
        if not records.num_rows:
            yield batch
