"""Refuses the state of a newer release before anything is changed: an older one must not delete what it cannot read.

A record is written in the oldest version that can hold it, so one file may be new where the others are not: each is
looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import NewerFormatError
from lakeward.storage.checkpoint_format import METADATA_VERSIONS, PART_VERSIONS
from lakeward.storage.checkpoint_layout import METADATA
from lakeward.storage.records import version_of
from lakeward.storage.round_journal import FILE as JOURNAL
from lakeward.storage.round_journal import VERSIONS as JOURNAL_VERSIONS
from lakeward.storage.service_state import FILE as STATE
from lakeward.storage.service_state import VERSIONS as STATE_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.storage.small_files import SmallFiles

_PART = "part-"
_KNOWN = {STATE: STATE_VERSIONS, JOURNAL: JOURNAL_VERSIONS, METADATA: METADATA_VERSIONS}


def refuse_newer(files: SmallFiles, service: str) -> None:
    """Make sure that this release knows the format of all state, journals and checkpoints of a service. Blocking.

    Raises:
        NewerFormatError: a file has a later version than any that is known; names it.
        StorageError: the disk or store refused.
    """
    for entry in files.entries(service):
        name = entry.name.rpartition("/")[2]
        known = PART_VERSIONS if name.startswith(_PART) else _KNOWN.get(name)
        if known is not None:
            _refuse_newer(files, entry.name, known)


def _refuse_newer(files: SmallFiles, name: str, known: Collection[int]) -> None:
    data = files.read(name)
    found = None if data is None else version_of(data)
    if found is not None and found > max(known):
        raise NewerFormatError(files.path(name), known, found)
