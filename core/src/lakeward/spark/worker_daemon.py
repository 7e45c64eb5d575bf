"""The process from which Spark forks its Python workers, where those run in the driver's own environment.

Spark puts PySpark's zips before everything else on their search path, and of a zip no compiled code is kept: each
worker would compile PySpark anew, a second of processor time, before its task begins. Here PySpark comes from where the
driver has it, and is imported once, before workers are forked, with what else starts no threads. What does, such as
Arrow, each worker imports for itself (spark.md, "Python workers").
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_DAEMON = "spark.python.daemon.module"
_IMPORTS = ("pyspark.worker", "lakeward.sockets.client", "lakeward.hooks.discovery")
_ONE_THREAD = "OPENBLAS_NUM_THREADS"


def daemon_options(worker: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the option by which Spark starts workers from here; none where theirs is another Python or PySpark.

    `worker` is the Python of the workers, `environ` the environment of this process.
    """
    home = os.path.realpath(import_module("pyspark").__path__[0])
    if worker != sys.executable or os.path.realpath(environ.get("SPARK_HOME") or home) != home:
        return {}
    return {_DAEMON: __name__}


def without_zips(path: list[str]) -> list[str]:
    """Return a search path without the zips that Spark puts on it; with them, where PySpark is nowhere else."""
    others = [entry for entry in path if not (entry.endswith(".zip") and Path(entry).parts[-3:-1] == ("python", "lib"))]
    return others if all(PathFinder.find_spec(name, others) for name in ("pyspark", "py4j")) else path


def prepare() -> None:
    """Import what all workers need, and what starts no thread: a fork would be without it, and keep its locks."""
    sys.path[:] = without_zips(sys.path)
    for module in _IMPORTS:
        import_module(module)
    os.environ.setdefault(_ONE_THREAD, "1")
    with suppress(ImportError):  # Arrow imports it where it is installed
        import_module("numpy")


if __name__ == "__main__":
    prepare()
    import_module("pyspark.daemon").manager()
