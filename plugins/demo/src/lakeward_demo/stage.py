"""Where a demo plays: the embedded store, or a private throw-away cluster of Fluss."""

from __future__ import annotations

import importlib.util
import json
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import UsageError
from lakeward_demo.lakes import UPKEEP, open_lake
from lakeward_demo.place import SERVICE, common_config
from lakeward_demo.source import EmbeddedDemo
from lakeward_demo.store import EMBEDDED, FLUSS
from lakeward_demo.tables import ALL_TABLES
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakeward_demo.lakes import DemoLake
    from lakeward_demo.place import Place
    from lakeward_demo.store import DemoStore, DemoTable


@dataclass(frozen=True, slots=True)
class Stage:
    """An empty source with the demo's tables. `lasts` says whether it is still there when the demo is over."""

    source: str
    address: str
    store: DemoStore
    lake: DemoLake
    tables: tuple[DemoTable, ...]
    cleaner: str
    lasts: bool


def open_store(source: str, address: str) -> DemoStore:
    """Open what a stage named, in any process."""
    if source == EMBEDDED:
        return EmbeddedDemo.open(address)
    from lakeward_demo.fluss.store import FlussDemoStore  # noqa: PLC0415 - needs the Fluss source and pyfluss

    return FlussDemoStore(address)


@contextmanager
def open_stage(source: str, lake: str, place: Place, report: Callable[[str], None]) -> Iterator[Stage]:
    """Make a source with the demo's tables, for the length of a `with` block.

    The configuration of `place` is written anew where the source needs another one. `report` is called with one line of
    progress at a time.

    Raises:
        UsageError: something has to be installed first; says what.
        LakewardError: its cluster cannot be had here; says why.
    """
    read = open_lake(lake, place)
    if source == EMBEDDED:
        with EmbeddedStore.create(place.store) as store:
            made = EmbeddedDemo(store)
            yield _staged(Stage(source, str(place.store), made, read, ALL_TABLES, "the store", lasts=True))
        return
    _check_fluss()
    from lakeward_demo.fluss.store import demo_cluster  # noqa: PLC0415 - as above

    with read.shared() as shared, demo_cluster(place.cluster, shared, report) as cluster:
        place.config.write_text(_config(cluster.options, lake, shared.options), encoding="utf-8")
        with closing(open_store(source, cluster.address)) as written:
            yield _staged(Stage(source, cluster.address, written, read, ALL_TABLES, "the cluster", lasts=False))


def _staged(stage: Stage) -> Stage:
    for table in stage.tables:
        stage.store.create(table)
    return stage


def _check_fluss() -> None:
    missing = [name for name in ("lakeward_source_fluss", "fluss") if importlib.util.find_spec(name) is None]
    if missing:
        message = (
            f"demo: expected the Fluss source and pyfluss, found no {missing[0]}; pip install 'lakeward-demo[fluss]'"
        )
        raise UsageError(message)


def _config(options: Mapping[str, str], lake: str, lake_options: Mapping[str, str]) -> str:
    """Return the configuration of a service on a cluster; a text of JSON is one of TOML too."""
    lines = [
        "# The configuration of `lakeward demo`. The cluster that it names lived as long as the demo.",
        "",
        "[service]",
        f'name = "{SERVICE}"',
        "poll_s = 0.5               # new rows are fed all the time",
        "",
        "[source]",
        f'type = "{FLUSS}"',
        *(f"{key} = {json.dumps(value)}" for key, value in options.items()),
        "",
        "[lake]",
        f'type = "{lake}"',
        *(f"{key} = {json.dumps(value)}" for key, value in lake_options.items()),
        UPKEEP.get(lake, ""),
        common_config(),
    ]
    return "\n".join(lines)
