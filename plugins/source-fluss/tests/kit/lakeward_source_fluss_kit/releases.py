"""The switch of fake servers: what a server of 0.9 or of 1.0 announces, and what it refuses.

The keys are those of recorded servers; the newer versions for tables with row TTL are those of the sources of 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakeward_source_fluss.rpc.releases import GET_TABLE_STATS, SINCE_1_0, Release
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.messages import ErrorResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward_source_fluss_kit.server import Call

Versions = dict[int, tuple[int, int]]
"""API key to its oldest and newest version."""
ROW_TTL: Final = "table.kv.ttl"
NEEDED_FOR_ROW_TTL: Final = frozenset(
    {
        ApiKey.GET_LATEST_KV_SNAPSHOTS,
        ApiKey.GET_KV_SNAPSHOT_METADATA,
        ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE,
        ApiKey.LIMIT_SCAN,
        ApiKey.SCAN_KV,
    }
)
"""What a table with row TTL needs in version 1."""
OF_0_9: Final[Versions] = {
    **{int(key): (0, 0) for key in ApiKey if key not in SINCE_1_0},
    ApiKey.PUT_KV: (0, 1),
    GET_TABLE_STATS: (0, 0),
}
OF_1_0: Final[Versions] = {
    **OF_0_9,
    **dict.fromkeys(SINCE_1_0, (0, 0)),
    **dict.fromkeys(map(int, NEEDED_FOR_ROW_TTL), (0, 1)),
    ApiKey.PUT_KV: (0, 2),
}
OFFERS: Final = {Release.V0_9: OF_0_9, Release.V1_0: OF_1_0}


def refusal_for_row_ttl(call: Call, properties: Mapping[str, str]) -> ErrorResponse | None:
    """Return what a server of 1.0 answers to a call in a version that cannot read the table; None to any other."""
    if call.api not in NEEDED_FOR_ROW_TTL or call.version > 0 or ROW_TTL not in properties:
        return None
    text = f"Client API version {call.version} is not supported: this table has row TTL enabled"
    return ErrorResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=text)
