"""Another program that commits to a table, as Paimon's own engines do: it knows neither stamps nor offsets."""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_lake_paimon.manifests import Manifests

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward_lake_paimon.kinds import Kind
    from lakeward_lake_paimon.manifests import Entry

_OF_ONE_SNAPSHOT = (
    "properties",
    "baseManifestListSize",
    "deltaManifestListSize",
    "changelogManifestList",
    "changelogManifestListSize",
    "changelogRecordCount",
)


class Other:
    """Commits to the table in a folder."""

    def __init__(
        self,
        folder: Path,
        kinds: Sequence[Kind] = (),
        publish: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Keep the folder, and the types of the partition keys; `publish` commits, where a catalog does that."""
        self._folder = folder
        self._kinds = kinds
        self._manifests = Manifests(LocalStorage(), str(folder))
        self._publish = publish or self._rename

    def commit(self, kind: str, entries: Sequence[Entry] = (), user: str = "spark", **said_of: str) -> None:
        """Commit entries on top of the head, by a rename as Paimon does on a disk; `said_of` are properties."""
        newest = max((int(one.name.partition("-")[2]) for one in self._folder.glob("snapshot/snapshot-*")), default=0)
        said: dict[str, Any] = json.loads((self._folder / "snapshot" / f"snapshot-{newest}").read_bytes())
        name = uuid.uuid4()
        there = [*self._manifests.read_list(said["baseManifestList"])]
        there += self._manifests.read_list(said["deltaManifestList"])
        self._manifests.write_list(f"manifest-list-{name}-0", there)
        added = [self._manifests.write(f"manifest-{name}-0", entries, 0, self._kinds)] if entries else []
        self._manifests.write_list(f"manifest-list-{name}-1", added)
        rows = sum(one.file.rows * (1 - 2 * one.kind) for one in entries)
        said |= {
            "id": newest + 1,
            "uuid": str(name),
            "baseManifestList": f"manifest-list-{name}-0",
            "deltaManifestList": f"manifest-list-{name}-1",
            "commitUser": user,
            "commitKind": kind,
            "deltaRecordCount": rows,
            "totalRecordCount": said["totalRecordCount"] + rows,
        }
        for gone in _OF_ONE_SNAPSHOT:
            said.pop(gone, None)
        if said_of:
            said["properties"] = {key.replace("_", "-"): value for key, value in said_of.items()}
        self._publish(said)

    def _rename(self, said: dict[str, Any]) -> None:
        folder = self._folder / "snapshot"
        temporary = folder / f".{said['uuid']}"
        temporary.write_text(json.dumps(said), encoding="utf-8")
        temporary.rename(folder / f"snapshot-{said['id']}")
        (folder / "LATEST").write_text(str(said["id"]), encoding="utf-8")

    def copy_newest_file(self, sequence: int) -> None:
        """Commit a copy of a data file of level 0, as rows of its own with a sequence number."""
        newest = max(int(one.name.partition("-")[2]) for one in self._folder.glob("snapshot/snapshot-*"))
        said = json.loads((self._folder / "snapshot" / f"snapshot-{newest}").read_bytes())
        there = [*self._manifests.read_list(said["baseManifestList"])]
        there += self._manifests.read_list(said["deltaManifestList"])
        entry = list(self._manifests.entries(there))[-1]
        name = f"data-{uuid.uuid4()}-0.parquet"
        bucket = self._folder / f"bucket-{entry.bucket}"
        shutil.copy(bucket / entry.file.name, bucket / name)
        self.commit(
            "APPEND",
            [replace(entry, file=replace(entry.file, name=name, min_sequence=sequence, max_sequence=sequence))],
        )
