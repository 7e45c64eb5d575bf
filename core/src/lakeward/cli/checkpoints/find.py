"""Open the store of checkpoints, and find one by its id or table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.clock import SystemClock
from lakeward.errors import UsageError
from lakeward.model.checkpoints import CheckpointInfo, CheckpointState
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.config.loaded import Loaded

NAMED = "an id as `lakeward checkpoints list` shows it, the end of one, or DB.TABLE for the table's newest"


def open_store(loaded: Loaded) -> CheckpointFiles:
    """Open the configured store.

    Raises:
        StorageError: its root is of no known kind.
    """
    return CheckpointFiles(SmallFiles(loaded.settings.checkpoint.address), SystemClock())


def complete_checkpoints(loaded: Loaded) -> dict[int, str]:
    """Return the newest complete checkpoint of each table, by table id."""
    infos = open_store(loaded).list(loaded.settings.service.name)
    return {info.ref.table_id: str(info.ref) for info in infos if info.state is CheckpointState.COMPLETE}


def find(infos: Sequence[CheckpointInfo], text: str) -> CheckpointInfo:
    """Find the checkpoint that `text` means: an id, the end of one, or a table's name.

    `infos` are all of the service, the newest of a table last.

    Raises:
        UsageError: there is none, or several.
    """
    of_table = [info for info in infos if str(info.path) == text and info.state is not CheckpointState.UNFINISHED]
    found = of_table[-1:] or [info for info in infos if f"/{info.ref}".endswith(f"/{text}")]
    if len(found) == 1:
        return found[0]
    if not found:
        message = f"checkpoint: expected {NAMED}; found none for {text!r}"
        raise UsageError(message)
    message = f"checkpoint: {text!r} may be {' or '.join(str(info.ref) for info in found)}"
    raise UsageError(message)
