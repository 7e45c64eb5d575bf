"""What the processes of a run tell one another: lines of one file, each of them one write; and what they are told."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Note = dict[str, Any]


class Notes:
    """Writes and reads the lines of a run."""

    def __init__(self, directory: Path) -> None:
        """Open the file of a run's directory."""
        self._file = os.open(directory / "notes.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._read = 0
        self._rest = b""

    def note(self, what: str, **fields: object) -> None:
        """Write a line."""
        line = json.dumps({"at": round(time.monotonic(), 3), "what": what, "pid": os.getpid()} | fields)
        os.write(self._file, line.encode() + b"\n")

    def fresh(self) -> list[Note]:
        """Return the lines since the last call."""
        data = os.pread(self._file, 1 << 22, self._read)
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


@dataclass(frozen=True, slots=True)
class Orders:
    """What the services and subtasks of a run are told: how many subtasks a table gets, and whether to be slow."""

    subtasks: dict[str, int] = field(default_factory=dict)
    slow: bool = True

    def give(self, directory: Path) -> None:
        """Write them, all at once."""
        draft = directory / "orders.draft"
        draft.write_text(json.dumps([self.subtasks, self.slow]), encoding="utf-8")
        draft.rename(directory / "orders.json")

    @classmethod
    def read(cls, directory: Path) -> Orders:
        """Read those that were given last."""
        return cls(*json.loads((directory / "orders.json").read_text(encoding="utf-8")))
