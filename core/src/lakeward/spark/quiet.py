"""Keeps Spark's start-up banner, hints and warnings off the terminal: an operator does not need them.

Errors stay. To get Spark's logs, set `[spark] conf` "spark.driver.extraJavaOptions" to a log4j2 file.
"""

from __future__ import annotations

import os
import socket
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.local_files import make_private, open_private

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOG4J = """status = off
rootLogger.level = error
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
appender.err.filter.again.type = RegexFilter
appender.err.filter.again.regex = Exception encountered|Exception in statusUpdate|Failed to update accumulator .*
appender.err.filter.again.onMatch = DENY
appender.err.filter.again.onMismatch = NEUTRAL
logger.tasks.name = org.apache.spark.executor.Executor
logger.tasks.level = off
logger.ends.name = org.apache.spark.TaskContextImpl
logger.ends.level = off
logger.sets.name = org.apache.spark.scheduler.TaskSetManager
logger.sets.level = off
logger.workers.name = org.apache.spark.api.python
logger.workers.level = off
logger.context.name = org.apache.spark.SparkContext
logger.context.level = off
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
# Executor, TaskSetManager and the Python runners print a page of Java for each subtask that ends early; the
# coordinator logs what happened in one line. The gateway's level equals the root's, or Spark prints a hint about it.
# TaskContextImpl does the same for a task that ends after Spark was stopped and has dropped its blocks; what it prints
# is part of the task's error, which reaches the coordinator.
# "Exception encountered" is logged by tasks that start while Spark stops, before they throw the exception anyway.
# The end of a task is not handled, and its accumulators are not updated, if it comes in the moment in which Spark is
# stopped; nothing here reads an accumulator.


def quiet_options(directory: Path, *, local: bool) -> str:
    """Write a log4j2 configuration, return the JVM option for it, and silence what pyspark prints in Python.

    If `local`, the master is this process: a machine without a name of its own is no problem then.
    """
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    if local:
        # Read by Spark before its configuration; without it a host without a proper name gets two warnings.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    make_private(directory)
    file = directory / "log4j2.properties"
    with open_private(file, "wb") as out:
        out.write(_LOG4J.encode())
    return f"-Dlog4j2.configurationFile={file.as_uri()} -Dlog4j.configurationFile={file.as_uri()}"


def quiet_accumulators(context: SparkContext) -> None:
    """Stop pyspark's accumulator server from printing an error when Spark's Java closes its connection.

    The server runs on a thread of this process and prints a traceback if Java ends first, as it does after a signal to
    the whole process group. What it then says depends on how much it had read: after a part of the secret it speaks of
    a wrong one. So it is asked whether the connection is closed. Errors of an open connection are still printed. A
    session of Spark Connect has no context, and needs no call.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    loud = server.handle_error

    def handle_error(request: socket.socket, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError) and not _is_closed(request):
            loud(request, client_address)

    server.handle_error = handle_error


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the other end closed a connection and all that it sent has been read."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except ConnectionError:
        return True
    except OSError:  # Open, with nothing to read; or an error of our own end, which is to be printed.
        return False
