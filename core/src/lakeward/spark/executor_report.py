"""What an executor says about itself. The function is sent whole, because an executor may lack Lakeward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def report(
    distributions: Iterable[str],
    address: tuple[str, int, str],
    secret: bytes,
    places: Iterable[tuple[str, str, str]] = (),
) -> Mapping[str, Any]:
    """Look around in an executor, connect to the driver as a subtask would, and write where a subtask would.

    Of `distributions` the versions are asked for. `address` has the parts of a `lakeward.ports.transport.Address`
    without the secret, which comes apart from it, as Spark broadcasts the rest. `places` are tried, see `try_places`.
    Returned are `python`, `executable`, `host`, `versions` (None where a distribution is not installed), `address` (of
    the executor, as its connection to the driver has it) and `error` (why there is none), both perhaps None; and
    `places` as `try_places` returns them.
    """
    import socket  # noqa: PLC0415 - a function that is sent whole brings its imports
    import sys  # noqa: PLC0415
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    versions: dict[str, str | None] = {}
    for name in distributions:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    own: str | None = None
    error: str | None = None
    try:
        from lakeward.clock import SystemClock  # noqa: PLC0415
        from lakeward.ports.transport import Address  # noqa: PLC0415
        from lakeward.sockets.client import open_stream  # noqa: PLC0415

        host, port, trusted = address
        stream = open_stream(Address(host, port, secret, trusted), SystemClock())
        own = str(stream.getsockname()[0])
        stream.close()
    except Exception as failed:  # noqa: BLE001 - whatever it is, the driver says it
        error = f"{type(failed).__name__}: {failed}"
    return {
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "host": socket.gethostname(),
        "versions": versions,
        "address": own,
        "error": error,
        "places": try_places(places),
    }


def try_places(places: Iterable[tuple[str, str, str]]) -> Mapping[str, tuple[bool, str]]:
    """Write a file into directories that the driver uses too, and delete it again.

    A place is a name, a directory, and a folder in it where the driver has written a file `driver`. By name it is told
    whether that file is there, and why none could be written beside it or deleted (empty: it was). Where the driver's
    file is missing, nothing is written: it is another directory.
    """
    found: dict[str, tuple[bool, str]] = {}
    for name, root, folder in places:
        shared = False
        try:
            from lakeward.storage.small_files import SmallFiles  # noqa: PLC0415 - see above

            files = SmallFiles(root)
            shared = files.read(f"{folder}/driver") is not None
            if shared:
                files.write(f"{folder}/executor", b"written by `lakeward doctor --write` on an executor\n")
                files.delete(f"{folder}/executor")
            found[name] = shared, ""
        except Exception as failed:  # noqa: BLE001 - as above
            found[name] = shared, str(failed) or type(failed).__name__
    return found
