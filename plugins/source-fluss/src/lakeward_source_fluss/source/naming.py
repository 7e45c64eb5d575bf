"""Adds to errors what those who raise them do not know: the server's release, the table, the right that is missing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward.errors import NewerSourceError
from lakeward_source_fluss.wire.apis import RIGHTS
from lakeward_source_fluss.wire.errors import AuthorizationError, FlussServerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_source_fluss.rpc.client import FlussClient
    from lakeward_source_fluss.wire.apis import ApiKey


@contextmanager
def naming_release(client: FlussClient) -> Iterator[None]:
    """Name the release in a `NewerSourceError` of what is done inside; a server's own refusals name it already."""
    try:
        yield
    except FlussServerError:
        raise
    except NewerSourceError as newer:
        raise newer.named(client.release) from newer


@contextmanager
def naming_right(api: ApiKey, table: object) -> Iterator[None]:
    """Name the right and the table in an `AuthorizationError` of the one call that is made inside."""
    try:
        yield
    except AuthorizationError as refused:
        raise refused.needing(RIGHTS[api], table) from refused
