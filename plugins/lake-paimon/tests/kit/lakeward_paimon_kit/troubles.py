"""Lets things happen around each call of the storage: the process dies, is paused, or the disk refuses.

The classes of the product are the ones that run; what is ours is around their methods, and around the calls of the
operating system by which a snapshot is created. A process that is dead changes nothing, not even while it cleans up.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from lakeward.errors import StorageError
from lakeward_lake_paimon.datafile import ParquetFile
from lakeward_lake_paimon.local_storage import LocalStorage, PinnedFolder
from lakeward_lake_paimon.s3_storage import S3Storage
from lakeward_paimon_kit.gateway import OF_QUESTIONS, Fate
from lakeward_paimon_kit.kills import KilledError
from lakeward_paimon_kit.replaced import replaced

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from lakeward_paimon_kit.gateway import Request

_READS = ("read", "exists", "names", "list", "open")
_CHANGES = ("write", "delete", "delete_folder", "rename_folder", "make_folder", "open_output")
_AROUND: tuple[tuple[type, tuple[str, ...], bool], ...] = (
    (LocalStorage, _READS, False),
    (LocalStorage, _CHANGES, True),
    (S3Storage, _READS, False),
    (S3Storage, tuple(name for name in _CHANGES if name != "rename_folder"), True),
    (PinnedFolder, ("names", "read"), False),
    (PinnedFolder, ("replace", "delete"), True),
    (ParquetFile, ("write", "close"), True),
)
_OS = ("link", "unlink", "rename")
_OF_CREATION = 30
"""So many times as likely is trouble with the one call by which a snapshot becomes the head."""


class Trouble(Enum):
    """What comes of one call."""

    NONE = "none"
    REFUSED = "refused"
    """Nothing happens, and the answer is an error."""
    LOST = "answer lost"
    """It happens, and the answer is an error."""
    TORN = "torn"
    """A part of it happens, and the answer is an error."""
    UNREADABLE = "answer lost, and no look"
    """Of a link: it happens, the answer is an error, and so is that of the look whether it is there."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the storage. `creates`: a snapshot may become the head by it."""

    name: str
    changes: bool = False
    creates: bool = False
    can_tear: bool = False


@dataclass(slots=True, eq=False)
class Process:
    """One process; `name` tells it from others in a story."""

    name: str
    is_dead: bool = False


class BrokenError(BaseException):
    """The simulation itself has a mistake; nothing may take it for an answer of the storage."""


class Fortune:
    """Says by chance what comes of each call. `acting` are the processes that are in a call, the innermost last."""

    def __init__(self, source: random.Random, meanwhile: Callable[[], None]) -> None:
        """Choose how likely each trouble is; `meanwhile` lets something happen while a process is in a call."""
        self.source = source
        self.acting: list[Process | None] = []
        """None: somebody who is none of ours, to whom nothing happens."""
        self.is_quiet = False
        self.changes = 0
        """How many calls there were that may have changed something."""
        self.faults: Counter[str] = Counter()
        self.story: list[str] = []
        self._meanwhile = meanwhile
        self._inside = False
        self._trouble = source.choice((0.0005, 0.0015, 0.004))
        self._kills = source.choice((0.0, 0.0005, 0.0015))
        self._pauses = source.choice((0.001, 0.003))

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.story.append(line)

    def count(self, what: str) -> None:
        """Count something that happened."""
        self.faults[what] += 1

    @property
    def is_dead(self) -> bool:
        """Whether the process that makes the calls is dead."""
        process = self.acting[-1] if self.acting else None
        return process is not None and process.is_dead

    def before(self, call: Call) -> Trouble:
        """Let something happen before a call, and say what comes of it."""
        self.changes += call.changes
        weight = _OF_CREATION if call.creates else 1
        if not self._may_happen(weight):
            return Trouble.NONE
        if self.source.random() >= self._trouble * weight:
            return Trouble.NONE
        kinds = [Trouble.REFUSED]
        if call.changes:
            kinds.append(Trouble.LOST)
        if call.can_tear:
            kinds.append(Trouble.TORN)
        if call.creates:
            kinds += [Trouble.LOST, Trouble.UNREADABLE]
        trouble = self.source.choice(kinds)
        self._note(f"{call.name}: {trouble.value}", "storage" if not call.creates else "link", trouble.value)
        return trouble

    def after(self, call: Call) -> None:
        """Let something happen after a call."""
        self.changes += call.changes
        if call.changes and self._is_acting:
            self._maybe_kill(_OF_CREATION if call.creates else 1)

    def meet(self, request: Request) -> None:
        """Let something happen before a request is sent."""
        self.changes += request.changes
        self._may_happen(_OF_CREATION if _creates(request) else 1)

    def fate(self, request: Request) -> Fate:
        """Say what becomes of a request."""
        weight = _OF_CREATION if _creates(request) else 1
        if not self._is_acting or self.source.random() >= self._trouble * weight:
            return Fate.PASSED
        fate = self.source.choice(OF_QUESTIONS if not request.changes else list(Fate))
        if fate is not Fate.PASSED:
            what = "put" if request.method == "PUT" else "commit" if _creates(request) else "request"
            self._note(f"{request.method} {request.path.rpartition('/')[2]}: {fate.value}", what, fate.value)
        return fate

    @property
    def _is_acting(self) -> bool:
        return not self.is_quiet and bool(self.acting) and self.acting[-1] is not None

    def _may_happen(self, weight: int) -> bool:
        """Kill or pause the process that is in a call; return whether there may be more trouble."""
        if self.is_dead:
            raise KilledError
        if not self._is_acting:
            return False
        self._maybe_kill(weight)
        if not self._inside and self.source.random() < self._pauses * weight:
            self._inside = True
            try:
                self._meanwhile()
            except AssertionError:
                raise  # a check has failed
            except Exception as error:
                raise BrokenError from error
            finally:
                self._inside = False
        return True

    def _maybe_kill(self, weight: int) -> None:
        process = self.acting[-1]
        if process is not None and self.source.random() < self._kills * weight:
            process.is_dead = True
            self.count("killed")
            raise KilledError

    def _note(self, said: str, what: str, trouble: str) -> None:
        self.tell(said)
        self.count(f"{what}: {trouble}")


def _creates(request: Request) -> bool:
    return request.method == "PUT" or request.path.endswith("/commit")


@contextmanager
def around(fortune: Fortune) -> Iterator[None]:
    """Let a fortune have its way with all calls of the storage."""
    with ExitStack() as stack:
        for owner, names, changes in _AROUND:
            for name in names:
                call = Call(f"{owner.__name__}.{name}", changes, can_tear=(owner, name) == (LocalStorage, "write"))
                stack.enter_context(replaced(owner, name, _wrapped(fortune, call, getattr(owner, name))))
        for name in _OS:
            stack.enter_context(replaced(os, name, _of_the_living(fortune, getattr(os, name))))
        link = _Link(fortune, os.link, PinnedFolder._read)
        stack.enter_context(replaced(os, "link", link.create))
        stack.enter_context(replaced(PinnedFolder, "_read", link.reader()))
        yield


def _wrapped(fortune: Fortune, call: Call, original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - any call
        trouble = fortune.before(call)
        if trouble is Trouble.REFUSED:
            raise StorageError(call.name)
        if trouble is Trouble.TORN:
            storage, path, data = given
            original(storage, path, data[: len(data) // 2])
            raise StorageError(call.name)
        found = original(*given, **named)
        if trouble is Trouble.LOST:
            raise StorageError(call.name)
        fortune.after(call)
        return found

    return wrapped


def _of_the_living(fortune: Fortune, original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - any call
        if fortune.is_dead:
            raise KilledError
        return original(*given, **named)

    return wrapped


class _Link:
    """The link by which a file is created that must not exist, and the look whether it is there."""

    def __init__(self, fortune: Fortune, link: Callable[..., None], read: Callable[..., bytes]) -> None:
        self._fortune = fortune
        self._link = link
        self._read = read
        self._is_unreadable = False

    def create(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 - as `os.link`
        """Create a link."""
        call = Call("link", changes=True, creates=True)
        trouble = self._fortune.before(call)
        if trouble is Trouble.REFUSED:
            raise OSError(5, "Input/output error")
        self._link(*given, **named)
        self._is_unreadable = trouble is Trouble.UNREADABLE
        if trouble is not Trouble.NONE:
            raise OSError(5, "Input/output error")
        self._fortune.after(call)

    def reader(self) -> Callable[[PinnedFolder, str], bytes]:
        """Return what reads the file that was to be created."""

        def read(folder: PinnedFolder, name: str) -> bytes:
            if self._is_unreadable:
                self._is_unreadable = False
                raise OSError(5, "Input/output error")
            return self._read(folder, name)

        return read
