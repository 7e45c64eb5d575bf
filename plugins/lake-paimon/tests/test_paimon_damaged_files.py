"""A table whose files are damaged is named with the file, changes nothing, and goes on once the file is whole again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import LakewardError
from lakeward.model.results import CommitOutcome
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from lakeward.ports import Lake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin


def tier(plugin: PaimonLakePlugin, lake: Lake, number: int) -> None:
    """Commit a round of one row."""
    tiering = TieringRound(plugin, lake, log_table(buckets=1), incarnation(), number)
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": number}])])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


@pytest.mark.parametrize("damage", [b"", b"{", b"\x00" * 64], ids=["empty", "cut", "zeros"])
@pytest.mark.parametrize(
    "kind", ["schema/schema-0", "snapshot/snapshot-2", "manifest/manifest-list-", "manifest/manifest-"]
)
def test_a_damaged_file_is_named_and_the_table_goes_on_once_it_is_whole(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, kind: str, damage: bytes
) -> None:
    tier(plugin, lake, 1)
    folder = Path(options.warehouse) / "shop.db" / "orders"
    lists = set(folder.glob("manifest/manifest-list-*"))
    found = [one for one in folder.glob(f"{kind}*") if kind.endswith("list-") or one not in lists]
    whole = {one: one.read_bytes() for one in found}
    for one in found:
        one.write_bytes(damage)
    files = {one for one in folder.rglob("*") if one.is_file() and one.parent.name != "_lakeward"}
    again = plugin.open(options, FakeClock())
    with pytest.raises(LakewardError) as caught:  # noqa: PT012 - whichever of them reads the file
        tier(plugin, again, 2)
        again.referenced(PATH, [str(one) for one in files])
    assert any(str(one) in str(caught.value) for one in found)
    for one, data in whole.items():
        one.write_bytes(data)
    assert files <= {one for one in folder.rglob("*") if one.is_file()}
    tier(plugin, again, 3)
    head = head_of(again).commit
    assert head is not None
    assert set((head.offsets or {}).values()) == {300}


def test_the_worker_half_imports_no_avro() -> None:
    half = "plugin", "writer", "key_writer", "layout", "stores"
    code = "; ".join(f"import lakeward_lake_paimon.{name}" for name in half)
    told = f"{code}; import sys; assert 'fastavro' not in sys.modules"
    subprocess.run([sys.executable, "-c", told], check=True)
