"""A lease backend's own keys in `[lease]`, and its `open` and `close`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import pytest

from lakeward.errors import LeaseError
from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import Lease, Protection
from lakeward.model.options import Meta, Options, Secret
from lakeward_testing.lease_server import MemoryLeaseServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.tables import TableBucket


class DeskOptions(Options, frozen=True, kw_only=True):
    """Keys of `[lease]` of this test's backend."""

    url: Annotated[str, Meta(description="The lease server.")] = "local"
    token: Annotated[Secret, Meta(description="Its token.")] = ""


class Configured:
    """Notes what it was made with and when it was opened and closed."""

    options = DeskOptions

    def __init__(self, options: DeskOptions) -> None:
        self.given = options
        self.life: list[str] = []

    def open(self) -> None:
        self.life.append(f"open {self.given.url}")
        if self.given.url == "down":
            message = "no route"
            raise OSError(message)

    def close(self) -> None:
        self.life.append("close")

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        del lease, snapshots
        self.life.append("acquire")
        return Protection(60.0)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        del lease, buckets

    @hookimpl
    def drop(self, lease: Lease) -> None:
        del lease


LEASE = Lease("svc-1-aa-1", 1, 60.0, {}, MemoryLeaseServer())


def test_a_backend_is_made_with_its_options_opened_before_its_hooks_and_closed_after_them() -> None:
    made: list[Configured] = []

    class Noted(Configured):
        def __init__(self, options: DeskOptions) -> None:
            super().__init__(options)
            made.append(self)

    backend = LeaseBackend("configured", Noted, options=DeskOptions(url="lease.example"))
    backend.open()
    backend.acquire(LEASE, {})
    backend.close()

    assert made[0].life == ["open lease.example", "acquire", "close"]


def test_a_backend_without_given_options_is_made_with_their_defaults() -> None:
    backend = LeaseBackend("configured", Configured)
    backend.acquire(LEASE, {})


def test_a_backend_that_cannot_open_is_named() -> None:
    with pytest.raises(LeaseError, match=r"configured.*open raised OSError: no route"):
        LeaseBackend("configured", Configured, options=DeskOptions(url="down")).open()
