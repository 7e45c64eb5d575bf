"""Where a demo plays: the embedded store, or a private throw-away cluster of a source that can be shown."""

from __future__ import annotations

import json
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import UsageError
from lakeward.hooks.demo import DemonstratedSource, SharedLake
from lakeward.hooks.discovery import load
from lakeward.hooks.plugins import LAKE_GROUP, SOURCE_GROUP
from lakeward_demo.place import SERVICE, common_config
from lakeward_demo.source import EmbeddedDemo
from lakeward_demo.tables import ALL_TABLES
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakeward.hooks.demo import DemoStore, DemoTable
    from lakeward_demo.place import Place

EMBEDDED = "embedded"
_LAKE = "iceberg"


@dataclass(frozen=True, slots=True)
class Stage:
    """An empty source with the demo's tables. `lasts` says whether it is still there when the demo is over."""

    source: str
    address: str
    store: DemoStore
    tables: tuple[DemoTable, ...]
    cleaner: str
    lasts: bool


def open_store(source: str, address: str) -> DemoStore:
    """Open what a stage named, in any process."""
    if source == EMBEDDED:
        return EmbeddedDemo.open(address)
    return _shown(source).demo_store(address)


@contextmanager
def open_stage(source: str, place: Place, report: Callable[[str], None]) -> Iterator[Stage]:
    """Make a source with the demo's tables, for the length of a `with` block.

    The configuration of `place` is written anew where the source needs another one. `report` is called with one line of
    progress at a time.

    Raises:
        UsageError: something has to be installed first, or this source cannot be shown.
        LakewardError: its cluster cannot be had here; says why.
    """
    if source == EMBEDDED:
        with EmbeddedStore.create(place.store) as store:
            yield _staged(Stage(source, str(place.store), EmbeddedDemo(store), ALL_TABLES, "the store", lasts=True))
        return
    shown = _shown(source)
    lake: object = load(LAKE_GROUP, _LAKE)
    if not isinstance(lake, SharedLake):
        message = f"demo: the installed lake {_LAKE!r} cannot share its catalog; pip install -U lakeward-lake-{_LAKE}"
        raise UsageError(message)
    with (
        lake.share_catalog(place.warehouse.absolute()) as catalog,
        shown.demo_cluster(place.cluster, catalog.address, catalog.warehouse, report) as cluster,
    ):
        place.config.write_text(_config(source, cluster.options, catalog.options), encoding="utf-8")
        with closing(shown.demo_store(cluster.address)) as written:
            yield _staged(Stage(source, cluster.address, written, ALL_TABLES, "the cluster", lasts=False))


def _staged(stage: Stage) -> Stage:
    for table in stage.tables:
        stage.store.create(table)
    return stage


def _shown(source: str) -> DemonstratedSource:
    plugin: object = load(SOURCE_GROUP, source)
    if not isinstance(plugin, DemonstratedSource):
        message = f"--source {source}: expected a source that can start a cluster of its own, found one that cannot"
        raise UsageError(message)
    return plugin


def _config(source: str, options: Mapping[str, str], lake: Mapping[str, str]) -> str:
    """Return the configuration of a service on a cluster; a text of JSON is one of TOML too."""
    lines = [
        "# The configuration of `lakeward demo`. The cluster that it names lived as long as the demo.",
        "",
        "[service]",
        f'name = "{SERVICE}"',
        "poll_s = 0.5               # new rows are fed all the time",
        "",
        "[source]",
        f'type = "{source}"',
        *(f"{key} = {json.dumps(value)}" for key, value in options.items()),
        "",
        "[lake]",
        f'type = "{_LAKE}"',
        *(f"{key} = {json.dumps(value)}" for key, value in lake.items()),
        "",
        common_config(),
    ]
    return "\n".join(lines)
