"""A source may delete a snapshot between naming it and leasing it: an ordinary race, which costs one more look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from lakeward_service_kit.service_world import told

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.tables import TablePath
    from lakeward_service_kit.service_world import World

ROWS = 40


def _clean_up_before_the_first_lease(world: World, keyed: TablePath) -> Callable[[str], None]:
    done: list[str] = []

    def before(hook: str) -> None:
        if hook == "acquire" and not done:
            done.append(hook)
            world.load(keyed, 0, ROWS, change="update")
            world.store.snapshot(keyed)
            world.store.maintain()

    return before


def test_a_snapshot_that_is_superseded_before_it_is_leased_is_neither_a_warning_nor_counted_as_gone(
    world: World,
) -> None:
    keyed = world.table("keyed", key=True, properties={"table.kv.snapshot.num-retained": "1"})
    world.load(keyed, 0, ROWS)
    world.store.snapshot(keyed)
    world.backend.before = _clean_up_before_the_first_lease(world, keyed)
    with capture_logs() as lines:
        assert world.once().failed == ()
    assert world.outcomes(keyed) == ["stale", "committed"]
    superseded = [line for line in lines if line["event"] == "a snapshot was superseded before it was leased"]
    assert {line["log_level"] for line in superseded} == {"info"}
    assert told(lines, "warning", "error") == []
    assert world.container.protection().snapshots_lost == 0
    assert len(world.lake.read(keyed, key="id")) == ROWS
