"""Files of an S3 store: Arrow reads, writes and lists; a snapshot is created by a conditional PUT.

Nothing is renamed there, so a table is never set aside, and the folder that a path names is always the same one.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from lakeward.errors import ConfigError, OutcomeUnknownError, StorageError
from lakeward.local_files import storage_errors
from lakeward_lake_paimon.conditional_put import CREATED, EXISTS, ConditionalPut, Keys
from lakeward_lake_paimon.known_files import KnownFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_REGION = "us-east-1"
"""Where a store of one's own has none."""


def _value(properties: Mapping[str, str], name: str, *variables: str) -> str:
    found = (os.environ.get(variable, "") for variable in variables)
    return properties.get(name) or next((value for value in found if value), "")


class S3Folder:
    """A folder of an S3 store; see `lakeward_lake_paimon.storage.Folder`."""

    is_at_its_path = True

    def __init__(self, storage: S3Storage, path: str) -> None:
        """Keep its URI."""
        self._storage = storage
        self.path = path

    def __enter__(self) -> Self:
        """Return the folder."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hold nothing."""

    def create(self, name: str, data: bytes, tag: str) -> bool:  # noqa: ARG002 - nothing temporary is written
        """See `Folder.create`."""
        return self._storage.put_new(f"{self.path}/{name}", data)

    def names(self) -> tuple[str, ...]:
        """See `Folder.names`."""
        return self._storage.names(self.path)

    def read(self, name: str) -> bytes | None:
        """See `Folder.read`."""
        return self._storage.read(f"{self.path}/{name}")

    def replace(self, name: str, data: bytes) -> None:
        """See `Folder.replace`: an object is replaced as a whole."""
        self._storage.write(f"{self.path}/{name}", data)

    def delete(self, name: str) -> None:
        """See `Folder.delete`."""
        self._storage.delete(f"{self.path}/{name}")


class S3Storage:
    """See `lakeward_lake_paimon.storage.Storage`. Paths are URIs, `s3://bucket/key`."""

    renames = False

    def __init__(self, uri: str, properties: Mapping[str, str]) -> None:
        """Open the store by Paimon's properties (`s3.endpoint` and the like), else by AWS's environment variables.

        Raises:
            ConfigError: there are no keys to sign a conditional PUT with.
        """
        endpoint = _value(properties, "s3.endpoint", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        region = _value(properties, "s3.region", "AWS_REGION", "AWS_DEFAULT_REGION") or _REGION
        access = _value(properties, "s3.access-key", "AWS_ACCESS_KEY_ID")
        secret = _value(properties, "s3.secret-key", "AWS_SECRET_ACCESS_KEY")
        token = _value(properties, "s3.session-token", "AWS_SESSION_TOKEN")
        if not (access and secret):
            key = "lake.properties"
            expected = (
                "s3.access-key and s3.secret-key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
            )
            raise ConfigError(
                key, expected, "none", "A commit is a signed request of its own, so a role is not enough."
            )
        self.known = KnownFiles()
        self._scheme = urlsplit(uri).scheme
        self._put = ConditionalPut(
            endpoint or f"https://s3.{region}.amazonaws.com", region, Keys(access, secret, token)
        )
        place = urlsplit(endpoint if "://" in endpoint or not endpoint else f"https://{endpoint}")
        self._fs = pafs.S3FileSystem(
            access_key=access,
            secret_key=secret,
            session_token=token or None,
            region=region,
            endpoint_override=place.netloc or None,
            scheme=place.scheme or "https",
        )

    def check_conditions(self, folder: str) -> None:
        """Try whether the store refuses to create an object that is there.

        Raises:
            ConfigError: it does not.
            StorageError: it cannot be tried.
        """
        probe = f"{folder}/.lakeward-probe-{secrets.token_hex(8)}"
        try:
            heeded = self.put_new(probe, b"first") and not self.put_new(probe, b"second")
        except OutcomeUnknownError as unknown:
            raise StorageError(str(unknown)) from unknown
        finally:
            with suppress(StorageError):
                self.delete(probe)
        if not heeded:
            key = "lake.warehouse"
            expected = (
                "a store that heeds `If-None-Match: *`, without which two services could overwrite each other's commits"
            )
            raise ConfigError(key, expected, f"{folder}, which does not")

    def put_new(self, uri: str, data: bytes) -> bool:
        """Create an object; return False, and change nothing, if there is one of that name.

        Raises:
            StorageError: the store refused, and nothing was created.
            OutcomeUnknownError: no answer came, and it may be created yet.
        """
        bucket, _, key = self.arrow_path(uri).partition("/")
        try:
            answer = self._put.put_new(bucket, key, data)
        except OSError as lost:
            if self._is_there(uri, data):
                return True
            message = f"{uri}: no answer whether it was created: {lost}"
            raise OutcomeUnknownError(message) from lost
        if answer.outcome == CREATED:
            return True
        if answer.outcome == EXISTS:
            # Whoever sent the request on may have sent it twice, and this is the second one's answer.
            return self._is_there(uri, data)
        message = f"{uri}: the storage refused: {answer.text}"
        raise StorageError(message)

    def _is_there(self, uri: str, data: bytes) -> bool:
        try:
            return self.read(uri) == data
        except StorageError as away:
            message = f"{uri}: cannot tell whether it was created: {away}"
            raise OutcomeUnknownError(message) from away

    def pin(self, folder: str) -> S3Folder:
        """See `Storage.pin`."""
        return S3Folder(self, folder)

    def create(self, path: str, data: bytes, tag: str) -> bool:  # noqa: ARG002 - nothing temporary is written
        """See `Storage.create`."""
        return self.put_new(path, data)

    def write(self, path: str, data: bytes) -> None:
        """See `Storage.write`."""
        with storage_errors(path), self._fs.open_output_stream(self.arrow_path(path)) as out:
            out.write(data)

    def read(self, path: str) -> bytes | None:
        """See `Storage.read`."""
        with storage_errors(path):
            try:
                with self._fs.open_input_file(self.arrow_path(path)) as source:
                    return bytes(source.read())
            except FileNotFoundError:
                return None

    def exists(self, path: str) -> bool:
        """See `Storage.exists`."""
        with storage_errors(path):
            return bool(self._fs.get_file_info(self.arrow_path(path)).is_file)

    def names(self, folder: str) -> tuple[str, ...]:
        """See `Storage.names`."""
        selector = pafs.FileSelector(self.arrow_path(folder), allow_not_found=True)
        with storage_errors(folder):
            return tuple(sorted(info.base_name for info in self._fs.get_file_info(selector)))

    def list(self, folder: str) -> tuple[str, ...]:
        """See `Storage.list`."""
        selector = pafs.FileSelector(self.arrow_path(folder).rstrip("/"), recursive=True, allow_not_found=True)
        with storage_errors(folder):
            found = self._fs.get_file_info(selector)
        return tuple(sorted(f"{self._scheme}://{info.path}" for info in found if info.is_file))

    def rename_folder(self, old: str, new: str) -> bool:  # noqa: ARG002 - as the protocol
        """See `Storage.rename_folder`; a store has no renames."""
        message = f"{old}: the store cannot rename it"
        raise StorageError(message)

    def make_folder(self, folder: str) -> None:
        """See `Storage.make_folder`; a store has no folders."""

    def delete_folder(self, folder: str) -> None:
        """See `Storage.delete_folder`."""
        with storage_errors(folder), suppress(FileNotFoundError):
            self._fs.delete_dir(self.arrow_path(folder))

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        with storage_errors(path), suppress(FileNotFoundError):
            self._fs.delete_file(self.arrow_path(path))

    def open(self, path: str) -> pa.NativeFile:
        """See `Storage.open`."""
        with storage_errors(path):
            return self._fs.open_input_file(self.arrow_path(path))

    def open_output(self, path: str) -> pa.NativeFile:
        """See `Storage.open_output`; names of files are never used twice."""
        with storage_errors(path):
            return self._fs.open_output_stream(self.arrow_path(path))

    def arrow_path(self, uri: str) -> str:
        """Return the path in Arrow's file system: bucket and key."""
        place = urlsplit(uri)
        return f"{place.netloc}{place.path}"
