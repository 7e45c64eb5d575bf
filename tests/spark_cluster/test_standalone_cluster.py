"""Rounds on a standalone cluster: a master and two workers, each a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward_cluster.cluster import HOST
from lakeward_e2e.tables import KeyTable, LogTable

if TYPE_CHECKING:
    from lakeward_cluster.world import ClusterWorld

pytestmark = pytest.mark.spark_cluster


def test_tables_are_tiered_on_two_workers(world: ClusterWorld) -> None:
    world.cluster.add_workers(HOST, HOST)
    log, keyed = LogTable(world.store, "events"), KeyTable(world.store, "orders")
    for table in (log, keyed):
        table.load()
    world.start(world.configure_cluster())
    world.until_same(log, keyed)
    world.until_clean(log, keyed)
