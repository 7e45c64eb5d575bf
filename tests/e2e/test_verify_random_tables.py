"""`lakeward verify` by its command, on random nested tables that a service tiered: no false alarm, and no crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.cli.main import run
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath
from lakeward_e2e.lakes import LAKES, lake_id
from lakeward_service_kit.service_world import World as Services
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.shapes import Shapes

if TYPE_CHECKING:
    from pathlib import Path

TABLES = 25
CONFIG = """
service.name = "svc"
source = { type = "embedded", path = "store" }
lake = { type = "LAKE", warehouse = "warehouse" }
checkpoint.root = "state"
[tables."t.clean_*"]
mode = "mirror"
system_columns = false
"""


@pytest.fixture(scope="module", params=LAKES, ids=lake_id)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a configuration and tables that were tiered in two rounds.

    Each second one has a key, and each third one a lake table without system columns.
    """
    folder = tmp_path_factory.mktemp("random")
    kind = request.param(folder)
    (folder / "lakeward.toml").write_text(CONFIG.replace("LAKE", kind.name), encoding="utf-8")
    services = Services.create(folder)
    clean = TableSettings(mode="mirror", system_columns=False)
    services.rules = lambda path: clean if path.table.startswith("clean") else TableSettings()
    lake = kind.open(services.clock)
    shapes = [Shapes(seed) for seed in range(TABLES)]
    tables = [one.columns() for one in shapes]
    for seed, (schema, _) in enumerate(tables):
        services.store.create_table(path_of(seed), schema, primary_key=["id"] if seed % 2 else [])
    for _ in range(2):
        for seed, (schema, make) in enumerate(tables):
            rows = pa.Table.from_pylist([make(key) for key in shapes[seed].random.sample(range(30), 15)], schema)
            if seed % 2:
                rows = rows.append_column("op", pa.array(["insert"] * len(rows)))
            services.store.load(path_of(seed), rows, "op" if seed % 2 else None)
        source = EmbeddedSource(EmbeddedStore.open(services.store.root))
        assert services.once(source=source, mirrors=True, lake=lake, lake_type=kind.name).failed == ()
    lake.close()
    services.store.close()
    return folder


def path_of(seed: int) -> TablePath:
    return TablePath("t", f"random_{seed}" if seed % 3 else f"clean_{seed}")


@pytest.mark.parametrize("seed", range(TABLES))
def test_a_random_table_is_equal(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    monkeypatch.chdir(place)
    code = run(["verify", str(path_of(seed))])
    said = capsys.readouterr()
    assert (code, said.err) == (0, ""), said
    rows = "rows of the source" if seed % 2 else "30 rows of the source, 30 rows of the lake"
    assert f"{path_of(seed)}: equal: " in said.out
    assert rows in said.out
