"""Paimon's own Java reader, in a Java process: what Flink and Spark plan and read with."""

from __future__ import annotations

import importlib.util
import os
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Rows = list[tuple[Any, ...]]
VERSION = "1.3.1"
REQUIRED = "LAKEWARD_PAIMON_JAVA"
"""Set to `required` where the reader has to be there: then its absence is a failure."""


class JavaReader:
    """Reads tables of a warehouse."""

    def __init__(self, jvm: Any) -> None:  # noqa: ANN401 - whatever the Java process has
        """Use a Java process."""
        self.jvm = jvm
        self.paimon = jvm.org.apache.paimon

    def table(self, warehouse: str, name: str, **options: object) -> Any:  # noqa: ANN401 - a Java object
        """Load a table by `database.table`; `options` are dynamic ones, with `_` in the place of `.` and `-`."""
        return self.table_of({"warehouse": f"file://{warehouse}"}, name, **options)

    def table_of(self, catalog: Mapping[str, str], name: str, **options: object) -> Any:  # noqa: ANN401 - a Java object
        """Load a table of a catalog by the catalog's options."""
        told = self.paimon.options.Options()
        for key, value in catalog.items():
            told.set(key, value)
        context = self.paimon.catalog.CatalogContext.create(told)
        opened = self.paimon.catalog.CatalogFactory.createCatalog(context)
        table = opened.getTable(self.paimon.catalog.Identifier.fromString(name))
        return table.copy({key.replace("__", "-").replace("_", "."): str(value) for key, value in options.items()})

    def rows(self, table: Any, *columns: str, where: Any = None) -> Rows:  # noqa: ANN401 - Java objects
        """Return all live rows as Paimon casts them to text, of some columns or of all.

        Args:
            table: the table.
            columns: which columns.
            where: a function from a `PredicateBuilder` and the columns' names to a predicate.
        """
        kind = table.rowType()
        names = list(kind.getFieldNames())
        chosen = [names.index(column) for column in columns or names]
        # Called by its class: py4j does not find methods that an interface implements.
        builder = self.paimon.table.source.ReadBuilderImpl(table)
        if where is not None:
            builder.withFilter(where(self.paimon.predicate.PredicateBuilder(kind), names))
        read = builder.newRead()
        internal = self.paimon.data.InternalRow
        getters = [(internal.createFieldGetter(kind.getTypeAt(n), n), self._cast(kind.getTypeAt(n))) for n in chosen]
        rows: Rows = []
        for split in builder.newScan().plan().splits():
            found = self.paimon.reader.RecordReaderIterator(read.createReader(split))
            try:
                rows += self._each(found, getters)
            finally:
                found.close()
        return rows

    def write(
        self,
        table: Any,  # noqa: ANN401 - a Java object
        rows: list[tuple[int, str]],
        *,
        compact: bool = False,
    ) -> None:
        """Write rows of a BIGINT and a STRING as Paimon's own writer does, and commit; `compact`: all of bucket 0."""
        builder = self.paimon.table.sink.BatchWriteBuilderImpl(table)
        manager = self.paimon.disk.IOManager.create("/tmp")  # noqa: S108 - Java spills nothing of so few rows
        write, commit = builder.newWrite().withIOManager(manager), builder.newCommit()
        try:
            for key, text in rows:
                # Not a row of boxed values: py4j makes an Integer of a small Long.
                row = self.paimon.data.BinaryRow(2)
                out = self.paimon.data.BinaryRowWriter(row)
                out.writeLong(0, key)
                out.writeString(1, self.paimon.data.BinaryString.fromString(text))
                out.complete()
                write.write(row)
            if compact:
                write.compact(self.paimon.data.BinaryRow.EMPTY_ROW, 0, True)
            commit.commit(write.prepareCommit())
        finally:
            write.close()
            commit.close()

    def files(self, table: Any, where: Any) -> int:  # noqa: ANN401 - Java objects
        """Return how many data files are read with a filter; `where` as of `rows`."""
        kind = table.rowType()
        builder = self.paimon.table.source.ReadBuilderImpl(table)
        builder.withFilter(where(self.paimon.predicate.PredicateBuilder(kind), list(kind.getFieldNames())))
        return sum(split.dataFiles().size() for split in builder.newScan().plan().splits())

    def copy(self, table: Any, to: Any) -> None:  # noqa: ANN401 - Java objects
        """Write the rows of a table to another one with Paimon's own reader and writer."""
        reading = self.paimon.table.source.ReadBuilderImpl(table)
        writing = self.paimon.table.sink.BatchWriteBuilderImpl(to)
        manager = self.paimon.disk.IOManager.create("/tmp")  # noqa: S108 - Java spills nothing of so few rows
        write, commit = writing.newWrite().withIOManager(manager), writing.newCommit()
        try:
            for split in reading.newScan().plan().splits():
                found = self.paimon.reader.RecordReaderIterator(reading.newRead().createReader(split))
                step = found.__getattr__("next")  # Java's method: `found.next` is py4j's
                while found.hasNext():
                    write.write(step())
                found.close()
            commit.commit(write.prepareCommit())
        finally:
            write.close()
            commit.close()

    @staticmethod
    def _each(found: Any, getters: list[tuple[Any, Any]]) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 - a Java object
        step = found.__getattr__("next")  # Java's method: `found.next` is py4j's
        while found.hasNext():
            row = step()
            values = [(getter.getFieldOrNull(row), cast) for getter, cast in getters]
            yield tuple(None if value is None else cast(value) for value, cast in values)

    def _cast(self, kind: Any) -> Any:  # noqa: ANN401 - a function
        text = self.paimon.types.VarCharType.STRING_TYPE
        executor = self.paimon.casting.CastExecutors.resolve(kind, text)
        return lambda value: executor.cast(value).toString()


@contextmanager
def java_reader() -> Iterator[JavaReader]:
    """Start a Java process with Paimon's jar; skip, or fail where it is required, if it cannot be had."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("lakeward_demo") is None:
        _go_without("needs pyspark's jars, and lakeward-demo to fetch Paimon's")
    from lakeward.errors import JavaError  # noqa: PLC0415 - where it is skipped nothing is loaded
    from lakeward_demo.fluss.jars import Jar, JarsMissingError, find_jars  # noqa: PLC0415 - as above
    from lakeward_demo.fluss.java import find_java  # noqa: PLC0415 - as above

    try:
        java = find_java()
        (paimon,) = find_jars((Jar("org.apache.paimon", "paimon-bundle", VERSION),), java)
    except (JavaError, JarsMissingError) as missing:
        _go_without(str(missing))
    import pyspark  # noqa: PLC0415 - where it is skipped nothing is loaded
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # noqa: PLC0415 - as above

    jars = Path(pyspark.__path__[0]) / "jars"
    (py4j,) = jars.glob("py4j-*.jar")
    port, token, process = launch_gateway(
        jarpath=str(py4j),
        classpath=f"{paimon}:{jars}/*",
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


def _go_without(why: str) -> NoReturn:
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{REQUIRED}=required, and Paimon's Java reader cannot be had: {why}")
    pytest.skip(why)
