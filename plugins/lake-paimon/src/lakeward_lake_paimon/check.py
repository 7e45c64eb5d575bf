"""For `lakeward doctor`: whether the warehouse can be used, and is that of the source's server."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakeward.errors import LakewardError
from lakeward.ports import CheckResult
from lakeward_lake_paimon.storage import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.ports import ServerLake
    from lakeward_lake_paimon.storage import Storage

_WHAT = "warehouse"
_DATABASE = ".db"
_FILESYSTEM = "filesystem"
_NOT_TRIED = "`lakeward doctor --write` tries it, with a file of its own that is deleted again"


def check_warehouse(storage: Storage, root: str, *, write: bool) -> Iterator[CheckResult]:
    """Look at a warehouse; see `lakeward.ports.CheckedLake`."""
    try:
        databases = sum(name.endswith(_DATABASE) for name in storage.names(root))
    except LakewardError as refused:
        action = "give the user of [lake] the right to list it"
        yield CheckResult(_WHAT, ok=False, message=f"cannot be listed: {refused}", action=action)
        return
    count = "1 database" if databases == 1 else f"{databases} databases"
    if not write:
        message = f"{root}: has {count}; whether it can be written was not tried"
        yield CheckResult(_WHAT, ok=True, message=message, action=_NOT_TRIED)
        return
    yield _try_to_write(storage, root)


def _try_to_write(storage: Storage, root: str) -> CheckResult:
    """Create a file as a snapshot is, and try to create it again."""
    folder = f"{root}/{TEMPORARY}doctor-{secrets.token_hex(4)}"
    name = f"{folder}/tried"
    try:
        created = storage.create(name, b"written by `lakeward doctor --write`\n", "doctor")
        again = storage.create(name, b"written again\n", "doctor")
        storage.delete(name)
    except LakewardError as refused:
        action = "give the user of [lake] the right to create and delete files there"
        return CheckResult(_WHAT, ok=False, message=f"{root}: {refused}", action=action)
    finally:
        with suppress(LakewardError):
            storage.delete_folder(folder)
    if created and not again:
        return CheckResult(_WHAT, ok=True, message=f"{root}: a file was created, refused a second time, and deleted")
    message = f"{root}: a file that was there was created again: two services could overwrite each other's commits"
    return CheckResult(_WHAT, ok=False, message=message, action="use a disk or a store that refuses that")


def compare_warehouses(root: str, server: ServerLake) -> CheckResult:
    """Compare the server's warehouse with ours; see `lakeward.ports.ComparedLake`."""
    metastore = server.settings.get("metastore", _FILESYSTEM).lower()
    if metastore != _FILESYSTEM:
        message = (
            f"the server's metastore is {metastore}, and ours is {_FILESYSTEM}: a table is committed to in one of them"
        )
        return CheckResult("", ok=False, message=message)
    there = server.settings.get(_WHAT, "")
    if there and _plain(there) != _plain(root):
        return CheckResult("", ok=False, message=f"expected lake.warehouse {there} as at the server, found {root}")
    return CheckResult("", ok=True, message="the server's warehouse is ours")


def _plain(address: str) -> str:
    if address.startswith("file:"):
        address = unquote(urlsplit(address).path)
    return address.rstrip("/").replace("s3a://", "s3://", 1)
