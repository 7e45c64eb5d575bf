"""What an executor says about itself. The function is sent whole, because an executor may lack Lakeward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def report(distributions: Iterable[str], address: tuple[str, int, bytes, str]) -> Mapping[str, Any]:
    """Look around in an executor, and connect to the driver as a subtask would.

    Args:
        distributions: whose versions are asked for.
        address: the parts of a `lakeward.ports.transport.Address`.

    Returns:
        `python`, `executable`, `host`, `versions` (None where a distribution is not installed), `address` (of the
        executor, as its connection to the driver has it) and `error` (why there is none), both perhaps None.
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

        stream = open_stream(Address(*address), SystemClock())
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
    }
