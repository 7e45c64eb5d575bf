"""`lakeward doctor`: whether state can be kept, and by which clock."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from lakeward.clock import SystemClock
from lakeward.errors import LakewardError
from lakeward.local_files import is_local
from lakeward.model.secrets import mask_uri
from lakeward.observe.files import writable
from lakeward.ports import CheckResult, compare_clocks
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.config.loaded import Loaded

_WHAT = "state directory"
_GRANT = "let this user list, write and delete there, or name another place in checkpoint.root"


def state_checks(loaded: Loaded, *, write: bool) -> Iterator[CheckResult]:
    """Look where state is kept: a store is asked for a listing. With `write`, a file is written and deleted."""
    checkpoint = loaded.settings.checkpoint
    try:
        if is_local(checkpoint.root):
            ok, message = writable(checkpoint.root)
            if not ok or not write:
                yield CheckResult(_WHAT, ok, message, "" if ok else _GRANT)
                return
        yield from _tried(loaded, write=write)
    except LakewardError as error:
        yield CheckResult(_WHAT, ok=False, message=f"[{error.code}] {error}", action=_GRANT)


def _tried(loaded: Loaded, *, write: bool) -> Iterator[CheckResult]:
    root, service = loaded.settings.checkpoint.root, loaded.settings.service.name
    files, clock = SmallFiles(loaded.settings.checkpoint.address), SystemClock()
    if not write:
        files.folders(service)
        yield CheckResult(_WHAT, ok=True, message=f"{mask_uri(root)} can be listed")
        return
    folder = f"{service}/.doctor-{secrets.token_hex(4)}"
    asked_ms = clock.wall_ms()
    files.write(f"{folder}/file", b"written by `lakeward doctor --write`\n")
    answered_ms = clock.wall_ms()
    written = files.entries(folder)
    files.delete(f"{folder}/file")
    yield CheckResult(_WHAT, ok=True, message=f"{mask_uri(root)}: a file was written, listed and deleted")
    if not is_local(root) and written and written[0].written_ms:
        yield compare_clocks("clock of the state's store", written[0].written_ms, asked_ms, answered_ms)
