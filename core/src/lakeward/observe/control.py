"""The control files: the requests of commands to a running service, which reads them again and again.

In a directory it is one file, `control.json`, and a lock lets one command at a time change it. A store has no locks
and no conditional PUT that `pyarrow.fs` knows, so there each table has a file of its own, `control/DB.TABLE.json`: two
commands that speak of two tables never write the same file.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
import structlog

from lakeward.errors import CorruptFileError, LakewardError, StorageError
from lakeward.local_files import is_local, locked, make_private
from lakeward.model.dead_letters import NEVER_ASKED, LetterFilter, ReplayRequest
from lakeward.observe.files import file_at, read_small, replace_file, replace_small, service_folder, store_at
from lakeward.repeated_failure import RepeatedFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from lakeward.model.tables import TablePath

CONTROL_FILE = "control.json"
CONTROL_FOLDER = "control"
VERSION = 1
_LOCK_S = 10.0
"""Seconds that a command waits for another one, which needs milliseconds."""
_log = structlog.get_logger("lakeward.control")


@dataclass(frozen=True, slots=True)
class Control:
    """The requests to a service.

    `paused` are tables (`db.table`) on which no round may be started. `resumed` counts, by table, how often
    `lakeward tables resume` was called, `upkeep` how often `lakeward upkeep run`: a number that has changed is a new
    request. So it is with that of `replay`, which also has the letters that `lakeward deadletters replay` meant last.
    """

    paused: frozenset[str] = frozenset()
    resumed: Mapping[str, int] = field(default_factory=dict)
    upkeep: Mapping[str, int] = field(default_factory=dict)
    replay: Mapping[str, ReplayRequest] = field(default_factory=dict)


class _Document(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    version: int
    paused: list[str]
    resumed: dict[str, int] = msgspec.field(default_factory=dict)
    upkeep: dict[str, int] = msgspec.field(default_factory=dict)
    replay: dict[str, ReplayRequest] = msgspec.field(default_factory=dict)


class _TableDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    version: int
    table: str
    paused: bool
    resumed: int
    upkeep: int = 0
    replay: ReplayRequest = NEVER_ASKED


_DOCUMENTS = msgspec.json.Decoder(_Document)
_TABLE_DOCUMENTS = msgspec.json.Decoder(_TableDocument)
"""Made while this is imported, both: threads that learn a type at the same time crash the process."""


class ControlReader:
    """Reads the control file of a running service. A file that cannot be read never ends the service."""

    def __init__(self, root: str, service: str) -> None:
        """Start without requests; nothing is read yet."""
        self._root = root
        self._service = service
        self._last = Control()
        self._trouble = RepeatedFailure(
            _log.warning,
            "the control file cannot be read; the requests read last still hold",
            "the control file can be read again",
        )

    def read(self) -> Control:
        """Return the requests; those that were read last where the file cannot be read now, with one warning."""
        try:
            self._last = read_control(self._root, self._service)
        except LakewardError as error:
            self._trouble.failed(str(error))
        else:
            self._trouble.succeeded()
        return self._last


def read_control(root: str, service: str) -> Control:
    """Read the requests to a service; none where there is no file.

    Raises:
        CorruptFileError: the file is damaged or of another version.
        StorageError: it cannot be read.
    """
    if not is_local(root):
        return _of_tables(_table_documents(root, service))
    file = file_at(root, service, CONTROL_FILE)
    data = read_small(root, service, CONTROL_FILE)
    if data is None:
        return Control()
    try:
        document = _DOCUMENTS.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptFileError(file, "a control file", str(error)) from error
    _check_version(document.version, file)
    return Control(frozenset(document.paused), document.resumed, document.upkeep, document.replay)


def _of_tables(documents: Iterable[_TableDocument]) -> Control:
    known = list(documents)
    paused = frozenset(each.table for each in known if each.paused)
    resumed = {each.table: each.resumed for each in known if each.resumed}
    upkeep = {each.table: each.upkeep for each in known if each.upkeep}
    return Control(paused, resumed, upkeep, {each.table: each.replay for each in known if each.replay.asked})


def _table_documents(root: str, service: str) -> Iterator[_TableDocument]:
    for entry in store_at(root).entries(f"{service}/{CONTROL_FOLDER}"):
        document = _table_document(root, service, entry.name.removeprefix(f"{service}/"))
        if document is not None:
            yield document


def _table_document(root: str, service: str, name: str) -> _TableDocument | None:
    data, file = read_small(root, service, name), file_at(root, service, name)
    if data is None:
        return None
    try:
        document = _TABLE_DOCUMENTS.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptFileError(file, "a control file", str(error)) from error
    _check_version(document.version, file)
    return document


def _check_version(version: int, file: str) -> None:
    if version != VERSION:
        raise CorruptFileError(file, f"version {VERSION}", version)


def pause(root: str, service: str, table: TablePath) -> bool:
    """Request that no round is started on a table until `resume`, also after a restart.

    Return False where it was paused already.

    Raises:
        CorruptFileError, StorageError: as `read_control`.
    """
    return _change(root, service, table, paused=True)


def resume(root: str, service: str, table: TablePath) -> bool:
    """Withdraw a pause, and request that a suspended table is tiered again.

    Arguments, result (False: it was not paused) and errors as `pause`.
    """
    return _change(root, service, table, paused=False)


def ask_upkeep(root: str, service: str, table: TablePath) -> None:
    """Request that the upkeep of a table which is due is done, as soon as slots are free.

    Errors as `pause`.
    """
    if not is_local(root):
        name, before = _table_file(root, service, str(table))
        after = msgspec.structs.replace(before, upkeep=before.upkeep + 1)
        replace_small(root, service, name, msgspec.json.encode(after))
        return
    folder = service_folder(root, service)
    with _locked(folder):
        control = read_control(root, service)
        asked = {**control.upkeep, str(table): control.upkeep.get(str(table), 0) + 1}
        _write(folder, replace(control, upkeep=asked))


def ask_replay(root: str, service: str, table: TablePath, wanted: LetterFilter) -> None:
    """Request that dead letters of a table are replayed before its next round; a later request takes its place.

    Errors as `pause`.
    """
    name = str(table)
    if not is_local(root):
        file, before = _table_file(root, service, name)
        after = msgspec.structs.replace(before, replay=before.replay.again(wanted))
        replace_small(root, service, file, msgspec.json.encode(after))
        return
    folder = service_folder(root, service)
    with _locked(folder):
        control = read_control(root, service)
        asked = control.replay.get(name, NEVER_ASKED).again(wanted)
        _write(folder, replace(control, replay={**control.replay, name: asked}))


def _change(root: str, service: str, table: TablePath, *, paused: bool) -> bool:
    if not is_local(root):
        return _change_table(root, service, str(table), paused=paused)
    folder = service_folder(root, service)
    with _locked(folder):
        control = read_control(root, service)
        before, resumed = control.paused, dict(control.resumed)
        after = before | {str(table)} if paused else before - {str(table)}
        if not paused:
            resumed[str(table)] = resumed.get(str(table), 0) + 1
        elif after == before:
            return False
        _write(folder, replace(control, paused=after, resumed=resumed))
        return after != before


def _write(folder: Path, control: Control) -> None:
    plain = dict(control.resumed), dict(control.upkeep), dict(control.replay)
    document = _Document(VERSION, sorted(control.paused), *plain)
    replace_file(folder / CONTROL_FILE, msgspec.json.encode(document))


def _table_file(root: str, service: str, table: str) -> tuple[str, _TableDocument]:
    name = f"{CONTROL_FOLDER}/{quote(table, safe='')}.json"
    return name, _table_document(root, service, name) or _TableDocument(VERSION, table, False, 0)


def _change_table(root: str, service: str, table: str, *, paused: bool) -> bool:
    name, before = _table_file(root, service, table)
    if before.paused and paused:
        return False
    after = msgspec.structs.replace(before, paused=paused, resumed=before.resumed + (not paused))
    replace_small(root, service, name, msgspec.json.encode(after))
    return before.paused != paused


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one command at a time change the file; the reader needs no lock."""
    with ExitStack() as held:
        try:
            make_private(folder)
            held.enter_context(locked(folder / "control.lock", _LOCK_S))
        except OSError as error:
            message = (
                f"{error.filename or folder}: cannot be locked ({error.strerror or error}); nothing was changed. "
                "If another `lakeward tables` command hangs, end it; then try again"
            )
            raise StorageError(message) from error
        yield
