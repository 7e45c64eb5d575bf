"""Mistakes that are made in the product on purpose: seeds have to find each (`--mistake NAME`)."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakeward.errors import OutcomeUnknownError
from lakeward_lake_paimon import compaction, expire, upkeep
from lakeward_lake_paimon import lake as lakes
from lakeward_lake_paimon.local_storage import PinnedFolder
from lakeward_lake_paimon.manifests import ADD, Entry
from lakeward_lake_paimon.s3_storage import S3Storage
from lakeward_lake_paimon.snapshots import Snapshots
from lakeward_lake_paimon.table import HeldTable
from lakeward_paimon_kit.replaced import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakeward_lake_paimon.manifests import DataFile, FileKey
    from lakeward_lake_paimon.merge_task import MergeTask

Change = tuple[Any, str, Any]


def _over_it(folder: PinnedFolder, temporary: str, name: str, _: bytes) -> bool:
    os.rename(temporary, name, src_dir_fd=folder._handle, dst_dir_fd=folder._handle)
    return True


def _no_if_unknown(original: Callable[..., bool]) -> Callable[..., bool]:
    def create(*given: Any) -> bool:  # noqa: ANN401 - as the method
        try:
            return original(*given)
        except OutcomeUnknownError:
            return False

    return create


def _whatever_is_left(
    place: Mapping[FileKey, Entry], merge: MergeTask, files: Sequence[DataFile]
) -> list[Entry] | None:
    keys = [(merge.partition, merge.bucket, file.level, file.name) for file in merge.files]
    added = [Entry(ADD, merge.partition, merge.bucket, merge.total_buckets, file) for file in files]
    return [*(place[key].taken_away() for key in keys if key in place), *added]


def _without_deletes(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: replace(original(*given), drops_deletes=True)


MISTAKES: Mapping[str, Callable[[], Sequence[Change]]] = {
    "a snapshot is put over another one": lambda: [(PinnedFolder, "_link", _over_it)],
    "nobody looks whose stamp is on the head": lambda: [(lakes, "_check_fence", lambda *_: None)],
    "a merge is committed though its files are gone": lambda: [(upkeep, "_replaced", _whatever_is_left)],
    "a lost answer is taken for a no": lambda: [
        (PinnedFolder, "create", _no_if_unknown(PinnedFolder.create)),
        (S3Storage, "put_new", _no_if_unknown(S3Storage.put_new)),
    ],
    "an expiry deletes what tags need": lambda: [(Snapshots, "tagged", lambda _: iter(()))],
    "sequence numbers begin anew": lambda: [(lakes, "next_sequence", lambda _: 0)],
    "a merge drops deletes of rows that are below it": lambda: [
        (compaction, "_merge", _without_deletes(compaction._merge)),
        (upkeep, "still_fits", lambda *_, **__: True),
    ],
    "a sweep deletes without asking": lambda: [(lakes, "_referenced", lambda *_: frozenset())],
    "nobody looks whether a number was expired": lambda: [(HeldTable, "note_head", lambda *_: None)],
    "files of stamps are left": lambda: [(expire, "tidy", lambda _: None)],
}


@contextmanager
def made(name: str) -> Iterator[None]:
    """Make a mistake for the length of a `with` block; with no name, none."""
    with ExitStack() as stack:
        for change in MISTAKES[name]() if name else ():
            stack.enter_context(replaced(*change))
        yield
