"""One line installs the core with its plugins, from wheels or sdists that are built here and nothing else."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

BUILT = ("core", "plugins/source-fluss", "plugins/lease-fluss", "plugins/lake-iceberg", "plugins/ops")


def is_not_ours(name: str) -> bool:
    return "lakeward" not in name


def run(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(words, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.network  # each of them is built by hatchling, which comes from a package index
@pytest.mark.parametrize(("kind", "suffix"), [("wheel", ".whl"), ("sdist", ".tar.gz")])
def test_one_line_installs_the_core_with_its_plugins_from_a_local_index(
    kind: str,
    suffix: str,
    root: Path,
    tmp_path: Path,
    linked_environment: Callable[[Callable[[str], bool]], dict[str, str]],
) -> None:
    environment = linked_environment(is_not_ours)
    uv = (Path(environment["VIRTUAL_ENV"]) / "bin" / "pip").read_text(encoding="utf-8").split("'")[1]
    index = tmp_path / "index"
    for project in BUILT:
        build = ("build", "--quiet", f"--{kind}", "--no-create-gitignore", "--out-dir", str(index))
        run(environment, uv, *build, str(root / project))
    assert [path.name.endswith(suffix) for path in index.iterdir()] == [True] * len(BUILT)

    further: list[str] = []
    if kind == "sdist":
        # The local index has no hatchling, so it lies beside the environment, which it may not change.
        backend = tmp_path / "backend"
        run(environment, "pip", "install", "--quiet", "--target", str(backend), "hatchling")
        environment["PYTHONPATH"] = str(backend)
        further = ["--no-build-isolation"]
    run(environment, "pip", "install", "--no-index", "--find-links", str(index), *further, "lakeward[fluss,iceberg]")
    environment.pop("PYTHONPATH", None)

    said = run(environment, "lakeward", "plugins")
    for plugin in ("source +fluss", "lake +iceberg", "lease backend +fluss"):
        assert re.search(rf"^{plugin} .*chaos", said, re.MULTILINE), said
    assert run(environment, "lakeward", "doctor", "--help").startswith("Usage: lakeward doctor")
