"""Writes the dead letters of one split to files of their own, in step with the split's position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from lakeward.model.batches import SourceBatch
from lakeward.model.dead_letters import KIND, letters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import pyarrow as pa

    from lakeward.errors import RowError
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.ports import LakeWriter

HELD_BYTES = 8 << 20
"""Letters are written once they have so many bytes; fewer wait for the next checkpoint or the end."""


class DeadLetterFiles:
    """Files of letters. Those up to the last `mark` belong to the position that the split can be read again from."""

    def __init__(self, open_writer: Callable[[], LakeWriter], split: Split, round_name: str) -> None:
        """Write nothing yet; each file has a writer of its own."""
        self._open_writer = open_writer
        self._split = split
        self._round_name = round_name
        self._held: list[pa.RecordBatch] = []
        self._marked = 0
        """How many of `_held` belong to the position."""
        self._files: tuple[LakeFile, ...] = ()
        self._unnamed: list[LakeWriter] = []
        """Writers of files among these that no checkpoint may name yet."""
        self._ahead: list[tuple[LakeWriter, tuple[LakeFile, ...]]] = []
        """Files of rows after the position, each with its writer."""

    def add(self, records: pa.RecordBatch, errors: Collection[RowError]) -> None:
        """Take rows that do not fit, and an error for each."""
        self._held.append(letters_of(records, errors, self._split, self._round_name))
        if sum(letters.nbytes for letters in self._held) >= HELD_BYTES:
            after = self._held[self._marked :]
            self._write_marked()
            if after:
                self._ahead.append(self._write(after))
            self._held = []

    def mark(self) -> None:
        """Note that all rows that were taken so far belong to the split's position."""
        for written in self._ahead:
            self._take(*written)
        self._ahead, self._marked = [], len(self._held)

    def roll(self) -> tuple[LakeFile, ...]:
        """Return all files up to the mark; a checkpoint may name them."""
        self._write_marked()
        self._unnamed = []
        return self._files

    def close(self) -> tuple[LakeFile, ...]:
        """Write what is left; return all files."""
        self.mark()
        self._write_marked()
        return self._files

    def abort(self) -> None:
        """Delete the files that no checkpoint names."""
        for writer in (*self._unnamed, *(writer for writer, _ in self._ahead)):
            writer.abort()

    def _write_marked(self) -> None:
        if self._marked:
            self._take(*self._write(self._held[: self._marked]))
        self._held, self._marked = self._held[self._marked :], 0

    def _take(self, writer: LakeWriter, files: tuple[LakeFile, ...]) -> None:
        self._files += files
        self._unnamed.append(writer)

    def _write(self, letters: list[pa.RecordBatch]) -> tuple[LakeWriter, tuple[LakeFile, ...]]:
        writer = self._open_writer()
        for batch in letters:
            writer.write(SourceBatch(batch, next_offset=0))
        return writer, tuple(structs.replace(file, kind=KIND) for file in writer.close())
