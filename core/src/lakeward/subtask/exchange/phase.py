"""How far the exchange of a subtask is."""

from __future__ import annotations

from enum import Enum


class ExchangePhase(Enum):
    """The phases in their order; a subtask without an exchange goes from the first to `RUNNING`, and to `DONE`."""

    CONNECTING = "connecting"
    """Channels are opened, and restored rows are read back."""
    RUNNING = "running"
    """Splits may be read, checkpoints taken."""
    WRITTEN = "written"
    """All files are closed; what was sent from here may still be on its way."""
    DONE = "done"
    """All consumers have written what they got from here as well."""
