"""Which release a server is of. Servers do not say it: it is told from the APIs in their API_VERSIONS answer. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from lakeward_source_fluss.wire.apis import LEASE_APIS, ApiKey

if TYPE_CHECKING:
    from collections.abc import Collection

GET_TABLE_STATS: Final = 1059
"""Of tablet servers, since 0.9; not called here."""
SINCE_1_0: Final = {
    1060: "ALTER_DATABASE",
    1061: "SCAN_KV",
    1062: "GET_CLUSTER_HEALTH",
    1063: "LIST_REMOTE_LOG_MANIFESTS",
    1064: "LIST_KV_SNAPSHOTS",
}
"""The keys that came with 1.0, to coordinators, tablet servers or both."""
_LAST_KEY: Final = max(SINCE_1_0)
_SINCE_0_9: Final = frozenset({*LEASE_APIS, ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT, GET_TABLE_STATS})


class Release(IntEnum):
    """A release as far as it can be told, older ones first."""

    V0_8 = 8
    V0_9 = 9
    V1_0 = 10
    LATER = 11

    def __str__(self) -> str:
        return _NAMES[self]

    @property
    def sign(self) -> str:
        """By which APIs it is told."""
        return _SIGNS[self]


_NAMES: Final = {
    Release.V0_8: "Fluss 0.8 or older",
    Release.V0_9: "Fluss 0.9",
    Release.V1_0: "Fluss 1.0",
    Release.LATER: "Fluss later than 1.0",
}
_SIGNS: Final = {
    Release.V0_8: "no API of 0.9 is offered",
    Release.V0_9: "APIs of 0.9 are offered, and none of 1.0",
    Release.V1_0: "APIs of 1.0 are offered, and none above",
    Release.LATER: "an API is offered that 1.0 does not have",
}


def release_of(keys: Collection[int]) -> Release:
    """Return the release of a server by the keys of its API_VERSIONS answer, in whatever versions."""
    if any(key > _LAST_KEY for key in keys):
        return Release.LATER
    if any(key in SINCE_1_0 for key in keys):
        return Release.V1_0
    return Release.V0_9 if any(key in _SINCE_0_9 for key in keys) else Release.V0_8


def in_words(releases: Collection[Release]) -> str:
    """Return the releases of a cluster's servers as text: several while it is upgraded; empty where none is known."""
    names = " and ".join(str(release) for release in sorted(set(releases)))
    return f"{names} by the APIs that it offers" if names else ""
