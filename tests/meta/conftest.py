"""The checkout that these tests look at."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def tracked(root: Path) -> list[Path]:
    """Return all files that git tracks and that are there."""
    words = ["git", "-C", str(root), "ls-files", "-z"]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        pytest.skip(f"not a git checkout: {done.stderr.strip()}")
    return [root / name for name in done.stdout.split("\0") if name and (root / name).is_file()]


@pytest.fixture
def linked_environment(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Callable[[str], bool]], dict[str, str]]:
    """Give what makes an environment of what is installed here, by links: what is added to it stays in it.

    It takes a function that says, of each name in site-packages, whether the environment has it, and returns the
    variables to start its commands with. The reader's `pip` is uv's, which needs no second copy of itself in there.
    """

    def make(has: Callable[[str], bool]) -> dict[str, str]:
        place = tmp_path_factory.mktemp("environment")
        uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        assert uv, "uv is a dependency of the tests"
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(place / "env")], check=True)
        installed = Path(sysconfig.get_paths(vars={"base": str(place / "env")})["purelib"])
        for one in (one for folder in site.getsitepackages() for one in Path(folder).iterdir() if has(one.name)):
            if one.suffix == ".dist-info":  # uv looks into directories, not into links
                shutil.copytree(one, installed / one.name, dirs_exist_ok=True)
            elif not (installed / one.name).exists():
                (installed / one.name).symlink_to(one)
        for name, words in {
            "lakeward": "python -c 'from lakeward.cli.main import main; main()'",
            "pytest": "python -m pytest -p no:cacheprovider",
            "pip": f"'{uv}' pip",
        }.items():
            script = place / "env" / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
            script.chmod(0o755)
        kept = {key: text for key, text in os.environ.items() if not key.startswith(("LAKEWARD_", "PYTEST_"))}
        path = f"{place / 'env' / 'bin'}{os.pathsep}{kept['PATH']}"
        own = {"PATH": path, "VIRTUAL_ENV": str(place / "env"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return kept | own

    return make
