"""Flink on this machine, with the Fluss connector: its SQL client, and upstream's tiering service, each in one JVM.

Flink's own jars come from the package apache-flink-libraries, the connector's by their Maven coordinates.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lakeward_demo.fluss.jars import FLUSS_VERSION, LAKE_JARS, PAIMON_VERSION, Jar, find_jars
from lakeward_demo.fluss.java import find_java
from lakeward_testing.waiting import wait_until

_FLINK = "1.20.3"
_CONNECTOR = (
    Jar("org.apache.fluss", "fluss-flink-1.20", FLUSS_VERSION),
    Jar("org.apache.fluss", "fluss-flink-tiering", FLUSS_VERSION),
)
_SQL_JARS = (Jar("org.apache.flink", "flink-sql-gateway", _FLINK),)
_OWN_READERS: Mapping[str, tuple[Jar, ...]] = {
    "iceberg": (Jar("org.apache.iceberg", "iceberg-flink-runtime-1.20", "1.10.1"),),
    "paimon": (Jar("org.apache.paimon", "paimon-flink-1.20", PAIMON_VERSION),),
}
"""A table `x$lake` is read by the lake's own connector, by `datalake.format`."""
_OPENS = ("nio", "lang", "util", "lang.invoke")
_TIERING = "org.apache.fluss.flink.tiering.FlussLakeTieringEntrypoint"
_SQL = "org.apache.flink.table.client.SqlClient"
_SQL_S = 180.0
_ROW = re.compile(r"^\|\s*(?:\+I \|)?\s*(-?\d+) \|\s*(-?\d+) \|$", re.MULTILINE)


class Flink:
    """Starts JVMs with Flink in them."""

    def __init__(self, directory: Path, bootstrap: str, lake: str, options: Mapping[str, str]) -> None:
        """Find the jars.

        Logs and configuration go into a directory that is made if it is not there. `lake` is the cluster's
        `datalake.format`, `options` are those of the tiering service for it.

        Raises:
            JarsMissingError: some cannot be had here.
            JavaError: there is no Java.
        """
        self._place = directory
        (self._place / "tmp").mkdir(parents=True, exist_ok=True)
        (self._place / "config.yaml").write_text("parallelism.default: 2\n", encoding="utf-8")
        self._bootstrap = bootstrap.partition(",")[0]
        self._lake, self._options = lake, options
        self._java = find_java()
        libraries = _libraries()
        self._jars = (*sorted(libraries.glob("lib/*.jar")), *find_jars((*_CONNECTOR, *LAKE_JARS[lake]), self._java))
        tools = [path for name in ("sql-client", "python") for path in libraries.glob(f"opt/flink-{name}-*.jar")]
        self._tools = (*tools, *find_jars((*_SQL_JARS, *_OWN_READERS[lake]), self._java))

    @contextmanager
    def tiering(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run upstream's tiering service for the length of a `with` block."""
        lake = [word for key, value in self._options.items() for word in (f"--datalake.{self._lake}.{key}", value)]
        words = [_TIERING, "--fluss.bootstrap.servers", self._bootstrap, "--fluss.tiering.poll.table.interval", "1s"]
        with (self._place / "tiering.log").open("ab") as log:
            command = [*self._command(self._jars), *words, "--datalake.format", self._lake, *lake]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._place)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def tier_until(self, done: Callable[[], bool], limit_s: float = 200.0) -> None:
        """Run the tiering service until something is so."""
        with self.tiering() as service:

            def is_done() -> bool:
                log = self._place / "tiering.log"
                assert service.poll() is None, log.read_text(encoding="utf-8", errors="replace")[-3000:]
                return done()

            wait_until(is_done, "upstream's tiering service to get there", limit_s, turn_s=0.5)

    def sql(self, database: str, statements: Sequence[str], mode: str = "batch") -> str:
        """Run statements in the SQL client on the cluster's catalog; returns what it printed."""
        head = [
            "SET 'execution.target' = 'local'",
            "SET 'sql-client.execution.result-mode' = 'tableau'",
            f"SET 'execution.runtime-mode' = '{mode}'",
            f"CREATE CATALOG fluss WITH ('type' = 'fluss', 'bootstrap.servers' = '{self._bootstrap}')",
            "USE CATALOG fluss",
            f"USE `{database}`",
        ]
        file = self._place / "statements.sql"
        file.write_text("".join(f"{line};\n" for line in (*head, *statements)), encoding="utf-8")
        done = subprocess.run(
            [*self._command((*self._jars, *self._tools)), _SQL, "embedded", "-f", str(file)],
            # Flink takes a folder `plugins` where it runs for its own.
            cwd=self._place,
            env=os.environ | {"FLINK_CONF_DIR": str(self._place)},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SQL_S,
            check=False,
        )
        return done.stdout

    def count_and_sum(self, database: str, table: str, column: str) -> tuple[int, int] | str:
        """Ask for the number of rows and the sum of a column, in batch; what was printed where there is no answer."""
        question = f"SELECT count(*) AS n, sum(`{column}`) AS s FROM `{table}`"  # noqa: S608 - a test's own text
        printed = self.sql(database, [question])
        answers = _ROW.findall(printed)
        return (int(answers[-1][0]), int(answers[-1][1])) if answers else printed[-3000:]

    def _command(self, jars: Sequence[Path]) -> list[str]:
        opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENS]
        opens.append("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED")
        return [
            str(self._java),
            "-Xmx1g",
            f"-Djava.io.tmpdir={self._place / 'tmp'}",
            *opens,
            "-cp",
            ":".join(map(str, jars)),
        ]


def _libraries() -> Path:
    spec = importlib.util.find_spec("pyflink")
    for place in (spec.submodule_search_locations if spec is not None else None) or ():
        if list(Path(place).glob(f"lib/flink-dist-{_FLINK}.jar")):
            return Path(place)
    message = f"pip install apache-flink-libraries=={_FLINK}"
    raise ModuleNotFoundError(message)
