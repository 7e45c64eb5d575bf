"""What a cluster can and cannot do, for `lakeward doctor`. No secret of the lake's catalog is in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from lakeward.model.secrets import MASK, mask_uri
from lakeward.ports import CheckResult, ServerLake
from lakeward_source_fluss.rpc.releases import SINCE_1_0, Release, release_of
from lakeward_source_fluss.wire.apis import API_VERSION, CALLED, LEASE_APIS, ApiKey
from lakeward_source_fluss.wire.errors import AuthorizationError, UnsupportedApiError
from lakeward_source_fluss.wire.messages import DescribeClusterConfigsRequest

if TYPE_CHECKING:
    from lakeward.model.tables import TablePath
    from lakeward_source_fluss.rpc.client import FlussClient
    from lakeward_source_fluss.source.tables import FlussTable, TableCatalog

_SHOWN = frozenset({"type", "uri", "warehouse", "name", "metastore", "catalog-impl", "io-impl", "catalog-name"})
"""Settings of a lake's catalog that are shown; any other may be a secret."""


def describe_cluster(
    client: FlussClient, catalog: TableCatalog, first_round: Literal["files", "scan"] | None = None
) -> Sequence[CheckResult]:
    """Ask a cluster what it offers. `first_round` is the key of the section `[source]`.

    Raises:
        SourceError: it cannot answer.
    """
    offers = {api: client.supports(api) for api in (*_TIERING, *LEASE_APIS, ApiKey.SCAN_KV)}
    announced = (client.offered(ApiKey.LAKE_TIERING_HEARTBEAT), client.offered(ApiKey.FETCH_LOG))
    tables = catalog.tables()
    enabled = [table for table in tables if table.lake_enabled]
    many = f"{len(tables)} table{'' if len(tables) == 1 else 's'}"
    scans = _scans(offers, first_round)
    return (
        _servers(client),
        _release(*map(release_of, announced)),
        _unused(announced, scans="SCAN_KV" if "tablet servers" in scans.message else ""),
        CheckResult("tables", ok=True, message=f"{many}, {len(enabled)} of them lake-enabled"),
        *_unreadable(tables),
        _leases(offers),
        scans,
        _tiering(offers, enabled),
        *_lakes([table for table in enabled if _names_lake(table)]),
        *_cluster_lake(client),
    )


_TIERING = (ApiKey.LAKE_TIERING_HEARTBEAT, ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT, ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT)


def server_lakes(tables: Sequence[FlussTable]) -> Sequence[ServerLake]:
    """Return the lakes that the cluster has for its lake-enabled tables, each once."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[TablePath]] = {}
    for table in tables:
        if table.lake_enabled and _names_lake(table):
            key = (table.lake_format, tuple(sorted(table.lake_settings.items())))
            found.setdefault(key, []).append(table.spec.path)
    return tuple(ServerLake(tuple(paths), name, dict(settings)) for (name, settings), paths in found.items())


def _names_lake(table: FlussTable) -> bool:
    """Return whether it is known which lake the server has for a table: not where its properties cannot be read."""
    return bool(table.lake_format) or not table.spec.unreadable


def _unreadable(tables: Sequence[FlussTable]) -> Sequence[CheckResult]:
    """Warn of each table that cannot be described: whether it is to be tiered, the configuration says."""
    return tuple(
        CheckResult("tables", ok=True, message=table.spec.unreadable, warning=True)
        for table in tables
        if table.spec.unreadable
    )


def _release(coordinator: Release, tablet: Release) -> CheckResult:
    """Say which release the servers are of: they do not say it themselves."""
    if coordinator is not tablet:
        message = f"the coordinator is {coordinator}, a tablet server {tablet} (told by API_VERSIONS)"
        return CheckResult("release", True, message, "end the upgrade of the cluster: all servers of one release", True)
    message = f"{tablet}, told by API_VERSIONS: {tablet.sign}"
    if tablet is not Release.LATER:
        return CheckResult("release", ok=True, message=message)
    return CheckResult("release", True, message, "read the release notes of Lakeward: a newer one may know it", True)


def _unused(announced: Sequence[Mapping[int, tuple[int, int]]], *, scans: str) -> CheckResult:
    """Say what the servers offer since 0.9 that is not used here, and what is not known here."""
    keys = {key for versions in announced for key in versions}
    unused = [name for key, name in sorted(SINCE_1_0.items()) if key in keys and name != scans]
    newer = sorted(
        f"{api.name} {newest}"
        for api in CALLED
        for newest in [max(versions.get(api, (0, 0))[1] for versions in announced)]
        if newest > API_VERSION
    )
    unknown = [str(key) for key in sorted(keys) if key > max(SINCE_1_0)]
    parts = [
        f"APIs of 1.0 ({', '.join(unused)})" if unused else "",
        f"newer versions of calls ({', '.join(newer)}; spoken is {API_VERSION})" if newer else "",
        f"APIs that are not known here ({', '.join(unknown)})" if unknown else "",
        _FEATURES_OF_1_0 if any(key in SINCE_1_0 for key in keys) else "",
    ]
    return CheckResult("not used", ok=True, message="; ".join(filter(None, parts)) or "nothing that came after 0.9")


_FEATURES_OF_1_0 = "filters and remote-first reads of logs; tables with row TTL are refused"


def _cluster_lake(client: FlussClient) -> Sequence[CheckResult]:
    """Say whether the cluster makes lake tables: `datalake.enabled` of 1.0; nothing where it is not set."""
    try:
        listed = client.call_any(DescribeClusterConfigsRequest()).configs
    except AuthorizationError:
        message = f"{_LAKES_ENABLED} of the cluster is not known: this user may not DESCRIBE the cluster"
        return (CheckResult("lake", ok=True, message=message),)
    except UnsupportedApiError:
        return ()
    found = {one.config_key: one.config_value for one in listed}
    if found.get(_LAKES_ENABLED) is None:
        return ()
    message = f"{_LAKES_ENABLED} = {found[_LAKES_ENABLED]} in the cluster"
    if found[_LAKES_ENABLED] == "true":
        return (CheckResult("lake", ok=True, message=message),)
    action = f"set {_LAKES_ENABLED} = true: without it the server makes no lake tables"
    return (CheckResult("lake", True, message, action, True),)


_LAKES_ENABLED = "datalake.enabled"


def shown_settings(settings: Mapping[str, str]) -> str:
    """Return a lake's settings as one line, masked but for those that are known to hold no secret."""
    return ", ".join(f"{key}={_shown(key, settings[key])}" for key in sorted(settings))


def _shown(key: str, value: str) -> str:
    return mask_uri(value, query=True) if key in _SHOWN else MASK


def _servers(client: FlussClient) -> CheckResult:
    servers = client.tablet_servers(fresh=True)
    named = ", ".join(f"{number} at {place}" for number, place in sorted(servers.items()))
    return CheckResult("servers", bool(servers), f"tablet servers: {named or 'none now'}")


def _leases(offers: Mapping[ApiKey, bool]) -> CheckResult:
    if all(offers[api] for api in LEASE_APIS):
        return CheckResult("leases", ok=True, message="yes: KV snapshots are protected while they are read")
    message = "no: older than 0.9; a first round goes without, and starts over where snapshots are cleaned under it"
    return CheckResult("leases", ok=True, message=message)


def _scans(offers: Mapping[ApiKey, bool], first_round: Literal["files", "scan"] | None) -> CheckResult:
    offered = offers[ApiKey.SCAN_KV]
    wanted = first_round or ("files" if all(offers[api] for api in LEASE_APIS) or not offered else "scan")
    if wanted == "scan" and not offered:
        return CheckResult("SCAN_KV", ok=False, message='no: set source.first_round to "files"')
    how = "the tablet servers, without files and leases" if wanted == "scan" else "the files of KV snapshots"
    message = f'{"yes" if offered else "no"}: rows of a first round come from {how} (first_round = "{wanted}")'
    return CheckResult("SCAN_KV", ok=True, message=message)


def _tiering(offers: Mapping[ApiKey, bool], enabled: Sequence[FlussTable]) -> CheckResult:
    missing = [api.name for api in _TIERING if not offers[api]]
    if not missing:
        return CheckResult("tiering", ok=True, message="yes: tables are handed out, lake snapshots registered")
    message = f'no: the coordinator does not offer {", ".join(missing)}; mode = "mirror" needs none of them'
    return CheckResult("tiering", not enabled, message)


def _lakes(enabled: Sequence[FlussTable]) -> Sequence[CheckResult]:
    """Say which lake the server gives with its tables; once for each."""
    found = dict.fromkeys((table.lake_format, shown_settings(table.lake_settings)) for table in enabled)
    if not found:
        return (CheckResult("lake", ok=True, message="not known: the server names it with lake-enabled tables alone"),)
    return tuple(
        CheckResult("lake", ok=True, message=f"the server's lake: {name or 'no format'} ({settings or 'no settings'})")
        for name, settings in found
    )
