"""The paths of a checkpoint's files: `<service>/<incarnation>/<table id>-<epoch>/chk-<number>/<file>`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from lakeward.errors import UsageError
from lakeward.model.checkpoints import CheckpointRef
from lakeward.model.identity import Incarnation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakeward.storage.small_files import FileEntry

METADATA = "_metadata"
ABANDONED = "_abandoned"
"""If this file exists, the checkpoint never counts, even if all other files exist or are written later."""
_FOLDER = re.compile(
    r"(?P<service>[^/]+)/(?P<start>[^/]+)/(?P<table>\d+)-(?P<epoch>-?\d+)/chk-(?P<number>\d+)", re.ASCII
)


def folder(ref: CheckpointRef) -> str:
    """Return the folder of a checkpoint, relative to the root."""
    return f"{ref.service}/{ref}"


def epoch_folder(ref: CheckpointRef) -> str:
    """Return the folder of the epoch that a checkpoint belongs to, relative to the root."""
    return folder(ref).rpartition("/")[0]


def place(ref: CheckpointRef, name: str) -> str:
    """Return a file's name, relative to the root."""
    return f"{folder(ref)}/{name}"


def part_name(subtask: int, task_attempt: int) -> str:
    """Return the file name of a subtask's part."""
    return f"part-{subtask}-{task_attempt}"


@lru_cache(maxsize=1024)
def parse_folder(name: str) -> CheckpointRef | None:
    """Parse a folder's name; None if it is not a checkpoint's. Cached: every listing has the same few folders."""
    match = _FOLDER.fullmatch(name)
    if match is None or _start(match["start"], match["service"]) is None:
        return None
    return CheckpointRef(
        match["service"], match["start"], int(match["table"]), int(match["epoch"]), int(match["number"])
    )


def start_of(ref: CheckpointRef) -> Incarnation:
    """Return the start that a checkpoint belongs to."""
    return Incarnation.parse(ref.incarnation)


def parse_start(name: str) -> Incarnation | None:
    """Return the start whose folder a file is in, whatever file it is; None if it is in none."""
    service, _, below = name.partition("/")
    start, found, _ = below.partition("/")
    return _start(start, service) if found else None


def by_checkpoint(entries: Iterable[FileEntry]) -> Mapping[CheckpointRef, dict[str, FileEntry]]:
    """Group files (names relative to the root) by checkpoint, then file name; leave out those that belong to none."""
    found: dict[CheckpointRef, dict[str, FileEntry]] = {}
    for entry in entries:
        where, _, name = entry.name.rpartition("/")
        ref = parse_folder(where)
        if ref is not None:
            found.setdefault(ref, {})[name] = entry
    return found


@lru_cache(maxsize=1024)
def _start(text: str, service: str) -> Incarnation | None:
    try:
        start = Incarnation.parse(text)
    except UsageError:
        return None
    return start if start.service == service else None
