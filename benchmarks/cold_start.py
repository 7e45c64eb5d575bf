"""What a start costs: `lakeward run --once` of a small table, beside a bare Spark session with one trivial job.

Both are whole processes, one after the other, so that both meet the same load; the seconds until the first line that
`lakeward` prints are told apart.

python benchmarks/cold_start.py [--rows 1000] [--repetitions 3] [--archive]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import psutil
import pyarrow as pa

from lakeward.model.tables import TablePath
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Sequence

MASTER = "local[2]"
TABLE = TablePath("bench", "small")
CONFIG = """
[service]
name = "{name}"
[source]
type = "embedded"
path = "store"
[lake]
type = "iceberg"
warehouse = "{name}"
[checkpoint]
root = "state"
[spark]
master = "{master}"
{archive}
"""
BARE = f"""
from pyspark.sql import SparkSession
session = SparkSession.builder.master("{MASTER}").getOrCreate()
found = session.sparkContext.parallelize(range(2), 2).mapPartitions(lambda rows: [sum(rows)]).collect()
assert found == [0, 1]
session.stop()
"""


class Taken(NamedTuple):
    """What a process took: seconds in all, and until it printed its first line (None: it printed nothing)."""

    seconds: float
    first_line: float | None


def run(command: Sequence[str], directory: Path) -> Taken:
    """Run a process to its end."""
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        heard = time.perf_counter() - start if first else None
        process.stdout.read()
    taken = Taken(time.perf_counter() - start, heard)
    if process.returncode:
        message = f"{command} ended with {process.returncode}"
        raise RuntimeError(message)
    return taken


def prepare(directory: Path, rows: int) -> None:
    """Make the table that each service tiers."""
    data = pa.table({"id": pa.array(range(rows), pa.int64()), "text": [f"row {number}" for number in range(rows)]})
    store = EmbeddedStore.create(directory / "store")
    store.create_table(TABLE, data.schema, buckets=1)
    store.load(TABLE, [data])


def lakeward(directory: Path, name: str, classes: Path | None) -> Taken:
    """Run a service that has never run before, on a warehouse of its own."""
    archive = "" if classes is None else f'class_archive = "{classes}"'
    file = directory / f"{name}.toml"
    file.write_text(CONFIG.format(name=name, master=MASTER, archive=archive), encoding="utf-8")
    program = str(Path(sys.executable).with_name("lakeward"))
    return run([program, "run", "--once", "--config", str(file)], directory)


def make_archive(directory: Path) -> Path:
    """Let a service write the archive of classes, and wait until its Java has ended."""
    classes, own = directory / "classes", directory / "first"
    own.mkdir()
    prepare(own, 1)
    lakeward(own, "first", classes)
    while not any(part.read_bytes()[:4].strip(b"\0") for part in classes.glob("*.part")):
        time.sleep(0.5)
    return classes


def main() -> None:
    """Measure both in turn, and print each pair and the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--archive", action="store_true", help="with an archive of classes (spark.class_archive)")
    arguments = parser.parse_args()
    pairs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.repetitions):
            directory = Path(folder, str(number))
            directory.mkdir()
            prepare(directory, arguments.rows)
            classes = make_archive(directory) if arguments.archive else None
            load = psutil.getloadavg()[0]
            bare = run([sys.executable, "-c", BARE], directory)
            ours = lakeward(directory, "cold", classes)
            pairs.append((bare.seconds, ours.seconds))
            first = float("nan") if ours.first_line is None else ours.first_line
            print(
                f"bare {bare.seconds:5.1f} s, lakeward {ours.seconds:5.1f} s: {ours.seconds / bare.seconds:.2f} x; "
                f"first line after {first:.1f} s; load {load:.1f}",
                flush=True,
            )
    ratio = median(ours for _, ours in pairs) / median(bare for bare, _ in pairs)
    print(f"run --once of {arguments.rows} rows takes {ratio:.2f} x a bare session with one job (medians)")


if __name__ == "__main__":
    main()
