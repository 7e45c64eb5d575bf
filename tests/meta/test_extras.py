"""One line installs the core with its plugins, from wheels that are built here and nothing else."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

BUILT = ("core", "plugins/source-fluss", "plugins/lease-fluss", "plugins/lake-iceberg")


def is_not_ours(name: str) -> bool:
    return "lakeward" not in name


def run(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(words, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.network  # each wheel is built by hatchling, which comes from a package index
def test_one_line_installs_the_core_with_its_plugins_from_a_local_index(
    root: Path, tmp_path: Path, linked_environment: Callable[[Callable[[str], bool]], dict[str, str]]
) -> None:
    environment = linked_environment(is_not_ours)
    uv = (Path(environment["VIRTUAL_ENV"]) / "bin" / "pip").read_text(encoding="utf-8").split("'")[1]
    for project in BUILT:
        build = ("build", "--quiet", "--wheel", "--no-create-gitignore", "--out-dir", str(tmp_path))
        run(environment, uv, *build, str(root / project))

    run(environment, "pip", "install", "--no-index", "--find-links", str(tmp_path), "lakeward[fluss,iceberg]")

    said = run(environment, "lakeward", "plugins")
    for plugin in ("source +fluss", "lake +iceberg", "lease backend +fluss"):
        assert re.search(rf"^{plugin} .*chaos", said, re.MULTILINE), said
