"""The last lines: what was tiered, where it lies, and how to query it from here."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.observe.format import count, seconds, size
from lakeward_demo.feed import FLIGHTS
from lakeward_demo.readers import CATALOG, catalog_uri, duckdb_ready, metadata_file
from lakeward_demo.tables import LAKE_PARTITIONS

if TYPE_CHECKING:
    from lakeward_demo.feed import Fed
    from lakeward_demo.place import Place
    from lakeward_demo.proof import Proof
    from lakeward_demo.stage import Stage
    from lakeward_demo.store import SnapshotCount

_SQL = "SELECT carrier, count(*) AS flights, round(avg(arr_delay), 1) AS minutes_late"
_SQL_ORDER = "GROUP BY carrier ORDER BY flights DESC LIMIT 5"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a demo did. `leases` is how many leases are left in the store; `spared` see `FeederLine`.

    `exchanged` is, of tables whose rows were exchanged between subtasks, how many bytes were.
    """

    fed: Fed
    rounds: dict[str, int]
    exchanged: dict[str, int]
    snapshots: SnapshotCount
    spared: int
    leases: int
    proof: Proof
    seconds: float


def document(place: Place, outcome: Outcome) -> dict[str, object]:
    """Return the summary as JSON gets it."""
    return {
        "verified": True,
        "directory": str(place.root),
        "seconds": round(outcome.seconds, 1),
        "fed": asdict(outcome.fed),
        "lake_rows": {str(table): rows for table, rows in outcome.proof.rows.items()},
        "rounds": outcome.rounds,
        "lake_partition": {str(table): fields for table, fields in LAKE_PARTITIONS.items()},
        "exchanged_bytes": outcome.exchanged,
        "snapshots": {**asdict(outcome.snapshots), "spared_by_lease": outcome.spared},
        "leases_left": outcome.leases,
        "read_by": outcome.proof.reader,
        "metadata": {str(table): str(metadata_file(place, table)) for table in outcome.proof.rows},
        "duckdb": duckdb_line(place),
        "pyiceberg": pyiceberg_line(place),
    }


def lines(place: Place, stage: Stage, outcome: Outcome) -> list[str]:
    """Return the last lines for people."""
    fed, proof, snapshots = outcome.fed, outcome.proof, outcome.snapshots
    rounds = ", ".join(f"{count(number, 'round')} on {table}" for table, number in sorted(outcome.rounds.items()))
    leases = "no lease left" if not outcome.leases else f"{count(outcome.leases, 'lease')} left"
    spared = f"{outcome.spared} outlived their clean-up: leased while a round was reading them"
    ways = [
        ("DuckDB", duckdb_line(place) or "pip install lakeward-demo brings it, with its Iceberg extension"),
        ("pyiceberg", pyiceberg_line(place)),
    ]
    if stage.lasts:
        ways.append(("lakeward", lakeward_line("tables", place.config)))
    found = ", ".join(f"{table} {rows:,} rows" for table, rows in proof.rows.items())
    return [
        "",
        f"verified   {proof.reader} finds in the lake exactly what was fed, every row and column:",
        f"           {found}",
        *_modes(stage, outcome),
        f"tiered     {count(fed.inserts, 'insert')} (schedules), {count(fed.deletes, 'delete')} (cancelled flights),",
        f"           {count(fed.updates, 'update')} (departures and arrivals)",
        f"           {rounds}, {seconds(outcome.seconds)} in all",
        f"snapshots  {snapshots.taken:,} taken, {snapshots.deleted:,} deleted by the source's clean-up, {leases}",
        f"           {spared if outcome.spared else 'none was being read when its turn came'}",
        f"lies in    {place.warehouse} (Iceberg; its catalog is catalog.db there)",
        "",
        "Query it from here:",
        *(f"\n  # {name}\n  {line}" for name, line in ways),
    ]


def _modes(stage: Stage, outcome: Outcome) -> list[str]:
    """Say which tables were tiered and which mirrored, where there are both, and how these lie in the lake."""
    mirrored = [str(table.path) for table in stage.tables if not table.tiered]
    tiered = [str(table.path) for table in stage.tables if table.tiered]
    if not mirrored:
        return []
    return [
        f"modes      tier: {', '.join(tiered)} (the source knows their lake snapshots and offsets)",
        f"           mirror: {', '.join(mirrored)} (the source was told nothing)",
        "layout     partitions that the source does not have:",
        *(
            f"           {table} by {', '.join(fields)}; {_route(outcome.exchanged.get(str(table)))}"
            for table, fields in LAKE_PARTITIONS.items()
        ),
    ]


def _route(exchanged: int | None) -> str:
    if exchanged is None:
        return "each row written by the subtask that read it"
    return f"{size(exchanged)} of rows exchanged between subtasks"


def duckdb_line(place: Place) -> str | None:
    """Return a line for the shell that asks DuckDB; None where DuckDB or its Iceberg extension is not installed."""
    if not duckdb_ready(place):
        return None
    file = str(metadata_file(place, FLIGHTS)).replace("'", "''")
    query = f"{_SQL} FROM iceberg_scan('{file}') {_SQL_ORDER}"
    connection = f"duckdb.connect(config={{'extension_directory': {str(place.duckdb)!r}}})"
    return python_line(f"import duckdb; print({connection}.sql('''{query}'''))")


def pyiceberg_line(place: Place) -> str:
    """Return a line for the shell that asks pyiceberg."""
    catalog = f"SqlCatalog({CATALOG!r}, uri={catalog_uri(place.warehouse)!r})"
    columns = "'flight_id', 'dest', 'status', 'arr_delay'"
    scan = f"load_table('{FLIGHTS}').scan('arr_delay > 600', selected_fields=({columns}))"
    return python_line(f"from pyiceberg.catalog.sql import SqlCatalog; print({catalog}.{scan}.to_pandas())")


def python_line(code: str) -> str:
    """Give code to this Python; in double quotes where that is safe, it reads better than what `shlex` makes of it."""
    quoted = shlex.quote(code) if set(code) & set('"$`\\!') else f'"{code}"'
    return f"{_from_here(Path(sys.executable))} -c {quoted}"


def lakeward_line(words: str, config: Path) -> str:
    """Return a line for the shell that runs a command, as it is typed, of this Lakeward with a configuration file."""
    script = Path(sys.executable).with_name("lakeward")
    program = _from_here(script) if script.exists() else f"{_from_here(Path(sys.executable))} -m lakeward"
    return f"{program} {words} --config {shlex.quote(str(config))}"


def _from_here(program: Path) -> str:
    """Name a program from the current directory where it lies below that."""
    here = Path.cwd()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))
