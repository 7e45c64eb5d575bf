"""A table that says something else of its files than what they are: its metadata is written anew, or a file is."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lakeward_lake_paimon.avro_file import Schema, read_avro, write_avro
from lakeward_lake_paimon.manifests import _ENTRY, _META

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

LISTS = "baseManifestList", "deltaManifestList", "changelogManifestList"


class Teller:
    """Writes the metadata of the newest snapshot of a table anew, everything beside the lie as it has to be."""

    def __init__(self, folder: Path) -> None:
        """Keep where the table lies."""
        self.folder = folder

    @property
    def newest(self) -> Path:
        """The file of the newest snapshot."""
        return max(self.folder.glob("snapshot/snapshot-*"), key=lambda one: int(one.name.partition("-")[2]))

    def say(
        self,
        entries: Callable[[dict[str, Any]], object] = lambda _: None,
        manifests: Callable[[dict[str, Any]], object] = lambda _: None,
        *,
        doubled: int | None = None,
        snapshot: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Change the entries of all manifests, what the lists say of these, and what the snapshot says.

        Entries are written a second time, as additions (0) or as what takes them away (1), if `doubled` is that kind.
        """
        said = json.loads(self.newest.read_bytes())
        for name in LISTS:
            if not said.get(name):
                continue
            listed = self.records(said[name])
            for manifest in listed:
                found = self.records(manifest["_FILE_NAME"])
                for one in found:
                    entries(one)
                if doubled is not None:
                    found += [one | {"_KIND": doubled} for one in found for _ in range(1 + doubled)]
                    manifest["_NUM_ADDED_FILES"] = sum(one["_KIND"] == 0 for one in found)
                    manifest["_NUM_DELETED_FILES"] = sum(one["_KIND"] == 1 for one in found)
                manifest["_FILE_SIZE"] = self._write(manifest["_FILE_NAME"], _ENTRY, found)
                manifests(manifest)
            said[f"{name}Size"] = self._write(said[name], _META, listed)
        self.newest.write_text(json.dumps({**said, **snapshot}), encoding="utf-8")

    def records(self, name: str) -> list[dict[str, Any]]:
        """Return the records of a manifest or a list."""
        return list(read_avro((self.folder / "manifest" / name).read_bytes()))

    def _write(self, name: str, schema: Schema, records: list[dict[str, Any]]) -> int:
        data = write_avro(schema, records)
        (self.folder / "manifest" / name).write_bytes(data)
        return len(data)
