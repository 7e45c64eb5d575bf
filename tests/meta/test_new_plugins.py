"""What `lakeward plugins new` writes is a project that is green at once: `tox` in it passes, for each kind."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

KINDS = ["lease", "wrapper", "lake", "source", "log-source"]


def linked_wheel(name: str, links: Path, wheels: Path) -> None:
    """Make a wheel that leads to a package which is installed here: Spark's own has 450 MB and comes as sources."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    (links / name).symlink_to(Path(spec.origin).parent)
    release = version(name)
    info = f"{name}-{release}.dist-info"
    with zipfile.ZipFile(wheels / f"{name}-{release}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.pth", f"{links}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """Serve the wheels of this checkout's core and suites, and Spark by links, as a package index would."""
    place, links = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("links")
    words = ["-m", "uv", "build", "--quiet", "--wheel", "--no-create-gitignore", "--out-dir", str(place)]
    for project in (root / "core", root / "plugins" / "testing"):
        subprocess.run([sys.executable, *words, str(project)], check=True)
    for name in ("pyspark", "py4j"):
        linked_wheel(name, links, place)
    return place


def run(words: list[str], where: Path, wheels: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a newcomer would: nothing of this test run's environment but the path to the wheels."""
    ours = ("LAKEWARD_", "PYTEST_", "TOX", "PYTHON", "VIRTUAL_ENV")
    environment = {key: text for key, text in os.environ.items() if not key.startswith(ours)}
    environment |= {"UV_FIND_LINKS": str(wheels), **more}
    return subprocess.run(words, cwd=where, env=environment, capture_output=True, encoding="utf-8", check=False)


LINTED = [
    ["ruff", "check", "--no-cache"],
    ["ruff", "format", "--no-cache", "--check", "--diff"],
    ["mypy", "src", "tests"],
]
"""What a newcomer may run first in the new project, with the settings that are in it."""


@pytest.fixture(scope="module")
def mypy_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where mypy keeps what it found out about our core, which is the same for all projects."""
    return str(tmp_path_factory.mktemp("mypy"))


@pytest.mark.parametrize("words", LINTED, ids=lambda words: "-".join(words[:2]))
@pytest.mark.parametrize("name", ["x", "my-own", "zebra-" + "n" * 34])
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_project_is_clean_by_its_own_settings(
    tmp_path: Path, mypy_cache: str, kind: str, name: str, words: list[str]
) -> None:
    if importlib.util.find_spec(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed in this environment")
    new = [sys.executable, "-m", "lakeward", "plugins", "new", "--kind", kind, name, "plugin"]
    assert run(new, tmp_path, tmp_path).returncode == 0
    done = run([sys.executable, "-m", *words], tmp_path / "plugin", tmp_path, MYPY_CACHE_DIR=mypy_cache)
    assert done.returncode == 0, done.stdout + done.stderr


def test_git_ignores_what_tools_leave_in_a_new_project(tmp_path: Path) -> None:
    new = [sys.executable, "-m", "lakeward", "plugins", "new", "my-own", "plugin"]
    assert run(new, tmp_path, tmp_path).returncode == 0
    place = tmp_path / "plugin"
    left = [
        ".tox/py3/x",
        ".mypy_cache/x",
        ".ruff_cache/x",
        ".pytest_cache/x",
        "src/lakeward_lease_my_own/__pycache__/x",
    ]
    written = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    assert run(["git", "init", "--quiet"], place, tmp_path).returncode == 0
    ignored = run(["git", "check-ignore", *left, *written], place, tmp_path).stdout.split()
    assert ignored == left


@pytest.mark.network
def test_the_readme_of_a_new_project_says_how_to_build_what_no_index_has(tmp_path: Path, root: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is not installed in this environment")
    new = [sys.executable, "-m", "lakeward", "plugins", "new", "my-own", "plugin"]
    assert run(new, tmp_path, tmp_path).returncode == 0
    text = (tmp_path / "plugin" / "README.md").read_text(encoding="utf-8")
    (line, folder) = re.findall(r"`pip (wheel [^`]* (/\S+) [^`]*)`", text)[0]
    (tox,) = re.findall(r"`([^`]* tox)`", text)
    words = line.replace(folder, str(tmp_path / "wheels")).replace("CHECKOUT", str(root)).split()

    done = run([sys.executable, "-m", "pip", *words, "--quiet", "--disable-pip-version-check"], tmp_path, tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    built = sorted(path.name.partition("-")[0] for path in (tmp_path / "wheels").iterdir())
    assert built == ["lakeward", "lakeward_testing"]
    assert tox == f"PIP_FIND_LINKS={folder} UV_FIND_LINKS={folder} tox"
    for runner in ("virtualenv", "uv-venv-runner"):
        words = ["-m", "tox", "config", "--runner", runner, "-e", "py3", "-k", "pass_env"]
        passed = run([sys.executable, *words], tmp_path / "plugin", tmp_path).stdout
        assert ("UV_*" if runner.startswith("uv") else "PIP_*") in passed


@pytest.mark.network
@pytest.mark.parametrize("kind", KINDS)
def test_tox_passes_in_a_new_project(tmp_path: Path, wheels: Path, kind: str) -> None:
    new = [sys.executable, "-m", "lakeward", "plugins", "new", "--kind", kind, "my-own"]
    assert run(new, tmp_path, wheels).returncode == 0
    role = kind.removeprefix("log-")
    project = tmp_path / f"lakeward-{role}-my-own"
    code = [path for path in (project / "src").rglob("*.py") if path.name != "__init__.py"]
    assert len(code) == 1

    tox = [sys.executable, "-m", "tox", "--colored", "no"]
    done = run(tox, project, wheels, UV_OFFLINE="1")
    if "UV_OFFLINE" in done.stdout + done.stderr or "network was disabled" in done.stdout + done.stderr:
        done = run(tox, project, wheels)  # the installer's cache does not have all of it yet

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d\d passed", done.stdout), done.stdout
    assert re.search(r"py3: OK", done.stdout), done.stdout
    # The package that was tested is the installed one.
    (installed,) = (project / ".tox").glob(f"py3/lib/python*/site-packages/lakeward_{role}_my_own/plugin.py")
    assert installed.read_bytes() == code[0].read_bytes()
