"""Names the server's release in errors of what this release does not know: decoders do not know who sent the bytes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward.errors import NewerSourceError
from lakeward_source_fluss.wire.errors import FlussServerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_source_fluss.rpc.client import FlussClient


@contextmanager
def naming_release(client: FlussClient) -> Iterator[None]:
    """Name the release in a `NewerSourceError` of what is done inside; a server's own refusals name it already.

    Args:
        client: knows the servers that were asked.
    """
    try:
        yield
    except FlussServerError:
        raise
    except NewerSourceError as newer:
        raise newer.named(client.release) from newer
