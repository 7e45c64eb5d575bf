"""What each service binds, as a file: `<root>/<service>/bindings.json`.

A service writes its own file when it starts and reads those of the others. The file stays when the service ends: its
tables wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lakeward.errors import CorruptFileError
from lakeward.model.bindings import Bindings, ServiceBinding

if TYPE_CHECKING:
    from lakeward.storage.small_files import SmallFiles

FILE = "bindings.json"
VERSION = 1


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    patterns: dict[str, int]
    shared: bool


class _Version(msgspec.Struct, frozen=True):
    version: int


_DOCUMENTS = msgspec.json.Decoder(_Document)
_VERSIONS = msgspec.json.Decoder(_Version)
"""Made while this is imported, both: threads that learn a type at the same time crash the process."""


class BindingFiles:
    """Reads and writes the bindings of the services of one state root. Blocking."""

    def __init__(self, files: SmallFiles) -> None:
        self._files = files

    @property
    def root(self) -> str:
        """The state root, for messages."""
        return self._files.path("").rstrip("/")

    def read(self) -> Bindings:
        """Return what every service of the root binds.

        Raises:
            CorruptFileError: a file is damaged, or of another version; names it.
            StorageError: the disk or store refused.
        """
        found = (self._read(service) for service in self.services())
        return Bindings(tuple(one for one in found if one is not None))

    def services(self) -> tuple[str, ...]:
        """Return the names of all services that have a folder in the root, sorted.

        Raises:
            StorageError: the disk or store refused.
        """
        return self._files.folders("")

    def write(self, binding: ServiceBinding) -> None:
        """Replace all that a service binds; a service that binds nothing and shares the rest needs no file.

        Raises:
            StorageError: the disk or store refused.
        """
        if not binding.patterns and binding.shared:
            self._files.delete(_name(binding.service))
        else:
            document = _Document(VERSION, dict(binding.patterns), binding.shared)
            self._files.write(_name(binding.service), msgspec.json.encode(document))

    def _read(self, service: str) -> ServiceBinding | None:
        data, file = self._files.read(_name(service)), self._files.path(_name(service))
        if data is None:
            return None
        try:
            version = _VERSIONS.decode(data).version
            if version != VERSION:
                raise CorruptFileError(file, f"version {VERSION}", version)
            document = _DOCUMENTS.decode(data)
        except msgspec.MsgspecError as error:
            raise CorruptFileError(file, "the bindings of a service", str(error)) from error
        return ServiceBinding(service, document.patterns, document.shared)


def _name(service: str) -> str:
    return f"{service}/{FILE}"
