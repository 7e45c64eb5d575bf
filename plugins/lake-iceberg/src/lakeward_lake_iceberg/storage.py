"""Files by URI through pyarrow, in the worker. Local paths, `file:` URIs and S3; others as Arrow knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlparse

import pyarrow.fs as pafs

from lakeward.local_files import storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

_S3_OPTIONS = {
    "s3.endpoint": "endpoint_override",
    "s3.access-key-id": "access_key",
    "s3.secret-access-key": "secret_key",
    "s3.session-token": "session_token",
    "s3.region": "region",
    "client.access-key-id": "access_key",
    "client.secret-access-key": "secret_key",
    "client.session-token": "session_token",
    "client.region": "region",
}
"""Options of an S3 file system: pyiceberg's names, and pyarrow's."""


class Storage:
    """The file system of one warehouse."""

    def __init__(self, uri: str, properties: Mapping[str, str]) -> None:
        """Open it for any URI or path in the warehouse, with pyiceberg's properties (`s3.endpoint` and the like)."""
        self._scheme = urlparse(uri).scheme
        self._fs = _filesystem(uri, self._scheme, properties)
        self._made: set[str] = set()

    def create(self, uri: str) -> pa.NativeFile:
        """Open a file for writing; its directory is made, an existing file is refused.

        Raises:
            StorageError: it exists, or the storage refused.
        """
        path = self.path(uri)
        with storage_errors(uri):
            if self._local:
                self._make_directory(path.rpartition("/")[0])
                if self._fs.get_file_info(path).type != pafs.FileType.NotFound:
                    message = "the file exists already and is not overwritten"
                    raise FileExistsError(message)
            return self._fs.open_output_stream(path)

    def open(self, uri: str) -> pa.NativeFile:
        """Open a file for random reading."""
        with storage_errors(uri):
            return self._fs.open_input_file(self.path(uri))

    def delete(self, uri: str) -> None:
        """Delete a file; one that is not there is no error."""
        with storage_errors(uri):
            try:
                self._fs.delete_file(self.path(uri))
            except FileNotFoundError:
                return

    def modified_ms(self, uri: str) -> int | None:
        """Return when a file was written, in milliseconds since 1970 by the store's clock; None on this machine."""
        return None if self._local else self.written_ms(uri)

    def written_ms(self, uri: str) -> int | None:
        """As `modified_ms`, on this machine by its own clock; None also where the file is gone."""
        with storage_errors(uri):
            told = self._fs.get_file_info(self.path(uri)).mtime_ns
        return None if told is None else int(told) // 1_000_000

    def delete_directory(self, uri: str) -> None:
        """Delete a directory with all that is in it; one that is not there is no error."""
        with storage_errors(uri):
            try:
                self._fs.delete_dir(self.path(uri))
            except FileNotFoundError:
                return

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the URIs of all files under a directory, sorted; none where there is no such directory."""
        return tuple(sorted(uri for uri, _ in self.infos(prefix)))

    def infos(self, prefix: str) -> Iterator[tuple[str, pafs.FileInfo]]:
        """Yield the URI of each file under a directory, and what the store says of it."""
        root = self.path(prefix).rstrip("/")
        with storage_errors(prefix):
            found = self._fs.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
        return ((self._uri(prefix, root, info.path), info) for info in found if info.is_file)

    def path(self, uri: str) -> str:
        """Return the path inside the file system."""
        if self._scheme in {"", "file"}:
            return local_path(uri)
        parsed = urlparse(uri)
        return parsed.path if self._scheme in {"hdfs", "viewfs"} else f"{parsed.netloc}{parsed.path}"

    @property
    def _local(self) -> bool:
        return self._scheme in {"", "file"}

    def _make_directory(self, directory: str) -> None:
        if directory not in self._made:
            self._fs.create_dir(directory, recursive=True)
            self._made.add(directory)

    @staticmethod
    def _uri(prefix: str, root: str, path: str) -> str:
        return prefix.rstrip("/") + path.removeprefix(root)


def local_path(uri: str) -> str:
    """Return the path of a `file:` URI in any of its forms, or the path itself."""
    for start in ("file://", "file:"):
        if uri.startswith(start):
            return uri.removeprefix(start)
    return uri


def _filesystem(uri: str, scheme: str, properties: Mapping[str, str]) -> pafs.FileSystem:
    if scheme in {"", "file"}:
        return pafs.LocalFileSystem()
    if scheme in {"s3", "s3a", "s3n"}:
        options = {name: properties[key] for key, name in _S3_OPTIONS.items() if key in properties}
        return pafs.S3FileSystem(**options)
    with storage_errors(uri):
        return pafs.FileSystem.from_uri(uri)[0]
