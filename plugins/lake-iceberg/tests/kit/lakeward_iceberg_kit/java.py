"""Iceberg's own Java reader, called in a Java process: what Spark and Flink plan and read with."""

from __future__ import annotations

import importlib.util
import os
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

Rows = list[tuple[Any, ...]]
REQUIRED = "LAKEWARD_ICEBERG_JAVA"
"""Set to `required` where the reader has to be there, as in tox's `cluster`: then its absence is a failure."""


class JavaReader:
    """Reads tables by their metadata files."""

    def __init__(self, jvm: Any) -> None:  # noqa: ANN401 - whatever the Java process has
        """Use a Java process."""
        self._iceberg = jvm.org.apache.iceberg
        self._io = jvm.org.apache.iceberg.hadoop.HadoopFileIO(jvm.org.apache.hadoop.conf.Configuration(False))

    def table(self, metadata: str) -> Any:  # noqa: ANN401 - a Java object
        """Load a table from a metadata file."""
        return self._iceberg.BaseTable(self._iceberg.StaticTableOperations(metadata, self._io), "table")

    def rows(self, metadata: str, *columns: str, where: Any = None) -> Rows:  # noqa: ANN401 - a Java object
        """Return all live rows, with times as their texts.

        Args:
            metadata: the metadata file.
            columns: which columns.
            where: an expression of `expressions`.
        """
        scan = self._iceberg.data.IcebergGenerics.read(self.table(metadata))
        found = (scan if where is None else scan.where(where)).build()
        try:
            return [tuple(_plain(one.getField(column)) for column in columns) for one in _each(found)]
        finally:
            found.close()

    def rewrite(self, metadata: str, path: str, file_format: str = "PARQUET") -> int:
        """Write all live rows to a new file, as a compaction does, and return its size.

        Args:
            metadata: the metadata file.
            path: the new file.
            file_format: PARQUET, ORC or AVRO.
        """
        table = self.table(metadata)
        factory = self._iceberg.data.GenericAppenderFactory(table.schema(), table.spec())
        appender = factory.newAppender(self._io.newOutputFile(path), self._iceberg.FileFormat.valueOf(file_format))
        rows = self._iceberg.data.IcebergGenerics.read(table).build()
        appender.addAll(rows)
        rows.close()
        appender.close()
        return int(appender.length())

    def deletes_of(self, metadata: str) -> dict[str, list[str]]:
        """Return the delete files that Java's planning attaches to each data file."""
        tasks = self.table(metadata).newScan().planFiles()
        try:
            return {task.file().location(): [one.location() for one in _each(task.deletes())] for task in _each(tasks)}
        finally:
            tasks.close()

    def row_ids(self, metadata: str) -> dict[str, int | None]:
        """Return the id that Java gives to the first row of each data file."""
        tasks = self.table(metadata).newScan().planFiles()
        try:
            return {task.file().location(): task.file().firstRowId() for task in _each(tasks)}
        finally:
            tasks.close()

    @property
    def expressions(self) -> Any:  # noqa: ANN401 - a Java class
        """Java's `Expressions`."""
        return self._iceberg.expressions.Expressions


def iceberg_jar(spark: str, version: str) -> tuple[Path, Path]:
    """Return Java and Iceberg's jar for a Spark; without Java, pyspark or the jar, skip, or fail where it is required.

    Args:
        spark: versions of Spark and Scala, such as `4.0_2.13`.
        version: Iceberg's.
    """
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("lakeward_source_fluss") is None:
        _go_without("needs pyspark's jars, and lakeward-source-fluss to fetch Iceberg's")
    from lakeward.errors import JavaError  # noqa: PLC0415 - where it is skipped nothing is loaded
    from lakeward_demo.fluss.jars import Jar, JarsMissingError, find_jars  # noqa: PLC0415 - as above
    from lakeward_demo.fluss.java import find_java  # noqa: PLC0415 - as above

    try:
        java = find_java()
        return java, find_jars((Jar("org.apache.iceberg", f"iceberg-spark-runtime-{spark}", version),), java)[0]
    except (JavaError, JarsMissingError) as missing:
        _go_without(str(missing))


@contextmanager
def java_reader() -> Iterator[JavaReader]:
    """Start a Java process with Iceberg's jar; skip or fail as `iceberg_jar`."""
    java, iceberg = iceberg_jar("4.0_2.13", "1.10.1")
    import pyspark  # noqa: PLC0415 - where it is skipped nothing is loaded
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # noqa: PLC0415 - as above

    jars = Path(pyspark.__path__[0]) / "jars"
    (py4j,) = jars.glob("py4j-*.jar")
    others = ":".join(str(one) for one in (iceberg, f"{jars}/*"))
    port, token, process = launch_gateway(
        jarpath=str(py4j),
        classpath=others,
        java_path=str(java),
        redirect_stdout=DEVNULL,
        redirect_stderr=DEVNULL,
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield JavaReader(gateway.jvm)
    finally:
        gateway.shutdown()
        for stream in (process.stdin, process.stdout):
            stream.close()
        process.wait()


def _each(iterable: Any) -> Iterator[Any]:  # noqa: ANN401 - a Java object
    """Yield what a Java `Iterable` has. py4j's own iterator takes an error of `next()` for the end of the rows."""
    iterator = iterable.iterator()
    step = iterator.__getattr__("next")  # Java's method: `iterator.next` is py4j's
    while iterator.hasNext():
        yield step()


def _go_without(why: str) -> NoReturn:
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{REQUIRED}=required, and Iceberg's Java reader cannot be had: {why}")
    pytest.skip(why)


def _plain(value: Any) -> Any:  # noqa: ANN401 - a Java value
    return value if value is None or isinstance(value, int | str | float | bytes | bool) else value.toString()
