"""Where a server's remote files lie: local paths and object stores, through pyarrow's filesystems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs

from lakeward.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
S3_OPTIONS = ("access_key", "secret_key", "session_token", "endpoint_override", "region", "scheme")
"""Options that `Storage` passes on to S3: the names are those of `pyarrow.fs.S3FileSystem`."""
S3_SCHEMES = ("https", "http")
"""Values of its option `scheme`."""


class Storage:
    """Opens remote files by their URI. One object is for one thread to make, and for many to use."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        """Keep the options: access to the object store, see S3_OPTIONS; never logged."""
        self._options = dict(options or {})
        self._s3: fs.FileSystem | None = None

    def locate(self, uri: str) -> tuple[fs.FileSystem, str]:
        """Return the filesystem of a URI, and the path in it.

        Servers name a local file `/dir/file`, `file:/dir/file` or `file:///dir/file`, as they were configured.

        Raises:
            StorageError: a scheme that is not known, or a path that is not absolute.
        """
        scheme, colon, rest = uri.partition(":")
        if not colon or "/" in scheme:
            return self._local(uri, uri)
        if scheme == "file":
            return self._local(_without_host(rest), uri)
        if scheme in _S3_SCHEMES:
            return self._s3_filesystem(), rest.lstrip("/")
        try:
            found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(uri)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as unknown:
            message = f"{uri}: expected a local path or an object store that pyarrow knows ({unknown})"
            raise StorageError(message) from unknown
        return found

    @staticmethod
    def _local(path: str, uri: str) -> tuple[fs.FileSystem, str]:
        if not path.startswith("/"):
            message = f"{uri}: expected an absolute path, found {path!r}"
            raise StorageError(message)
        return fs.LocalFileSystem(), path

    def _s3_filesystem(self) -> fs.FileSystem:
        if self._s3 is None:
            self._s3 = fs.S3FileSystem(**{key: value for key, value in self._options.items() if key in S3_OPTIONS})
        return self._s3


def _without_host(rest: str) -> str:
    """Return the path of what follows `file:`: `/a`, `///a` or `//localhost/a`."""
    if not rest.startswith("//"):
        return rest
    host, slash, path = rest[2:].partition("/")
    return slash + path if host in {"", "localhost"} else rest[2:]
