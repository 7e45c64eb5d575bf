"""The last lines: what was tiered, where it lies, and how to query it from here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lakeward.observe.format import count, seconds, size
from lakeward_demo.shell_lines import lakeward_line
from lakeward_demo.tables import LAKE_PARTITIONS

if TYPE_CHECKING:
    from lakeward_demo.feed import Fed
    from lakeward_demo.place import Place
    from lakeward_demo.proof import Proof
    from lakeward_demo.stage import Stage
    from lakeward_demo.store import SnapshotCount

_NAMES = {
    "duckdb": "DuckDB",
    "pyiceberg": "pyiceberg",
    "pypaimon": "pypaimon, in an environment of its own (pip install pypaimon)",
}
_HOW = "pip install lakeward-demo brings it, with its Iceberg extension"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a demo did. `leases` is how many leases are left in the store; `spared` see `FeederLine`.

    `exchanged` is, of tables whose rows were exchanged between subtasks, how many bytes were. `dead_letters` counts
    them by their lake table. `compacted` is, by table, how many files jobs of upkeep have merged, and into how many.
    """

    fed: Fed
    rounds: dict[str, int]
    exchanged: dict[str, int]
    snapshots: SnapshotCount
    spared: int
    dead_letters: dict[str, int]
    compacted: dict[str, tuple[int, int]]
    leases: int
    proof: Proof
    seconds: float


def document(place: Place, stage: Stage, outcome: Outcome) -> dict[str, object]:
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
        "dead_letters": outcome.dead_letters,
        "compacted": {
            table: {"files": files, "files_after": after} for table, (files, after) in outcome.compacted.items()
        },
        "leases_left": outcome.leases,
        "read_by": outcome.proof.reader,
        "metadata": {str(table): str(stage.lake.metadata_file(table)) for table in outcome.proof.rows},
        **stage.lake.query_lines(),
    }


def lines(place: Place, stage: Stage, outcome: Outcome) -> list[str]:
    """Return the last lines for people."""
    fed, proof, snapshots = outcome.fed, outcome.proof, outcome.snapshots
    rounds = ", ".join(f"{count(number, 'round')} on {table}" for table, number in sorted(outcome.rounds.items()))
    leases = "no lease left" if not outcome.leases else f"{count(outcome.leases, 'lease')} left"
    spared = f"{outcome.spared} outlived their clean-up: leased while a round was reading them"
    ways = [(_NAMES[name], line or _HOW) for name, line in stage.lake.query_lines().items()]
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
        *_kept(outcome),
        f"lies in    {place.warehouse} ({stage.lake.title})",
        "",
        "Query it from here:",
        *(f"\n  # {name}\n  {line}" for name, line in ways),
    ]


def _kept(outcome: Outcome) -> list[str]:
    """Say what did not fit, and what was merged meanwhile."""
    letters = [f"{count(number, 'row')} that did not fit in {table}" for table, number in outcome.dead_letters.items()]
    merged = [f"{count(files, 'file')} of {table} into {after}" for table, (files, after) in outcome.compacted.items()]
    heads = (("set aside  ", letters), ("compacted  ", merged))
    return [head + ", ".join(words) for head, words in heads if words]


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
