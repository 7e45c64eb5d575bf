from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.config.loader import load_config
from lakeward.errors import LeaseError
from lakeward.hooks import discovery
from lakeward.hooks.backend import LeaseBackend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def project(root: Path, tmp_path: Path) -> Path:
    """Write the files of the how-to, as a reader would."""
    text = (root / "docs" / "how-to" / "write-a-lease-backend.md").read_text(encoding="utf-8")
    pyproject = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0]
    backend, desk, test = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for name, content in {
        "pyproject.toml": pyproject,
        "src/lakeward_lease_desk/__init__.py": backend,
        "src/lakeward_lease_desk/desk.py": desk,
        "tests/test_lease_desk.py": test,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


def test_the_backend_of_the_how_to_passes_the_conformance_suite(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "src")},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d\d passed", done.stdout), done.stdout


@pytest.fixture
def on_the_path(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do what an installation does: put the package and its entry points on the path."""
    published = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = project / "src" / "lakeward_lease_desk-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Name: {published['name']}\nVersion: {published['version']}\n", encoding="utf-8"
    )
    entries = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items())
        for group, names in published["entry-points"].items()
    )
    (metadata / "entry_points.txt").write_text(entries, encoding="utf-8")
    monkeypatch.syspath_prepend(str(project / "src"))
    importlib.invalidate_caches()
    discovery.forget()
    yield
    sys.modules.pop("lakeward_lease_desk", None)
    discovery.forget()


@pytest.mark.usefixtures("on_the_path")
def test_the_backend_of_the_how_to_is_found_by_its_name() -> None:
    assert LeaseBackend.load("desk", ["metrics", "audit"]).default_duration_s == 3600.0


@pytest.mark.usefixtures("on_the_path")
def test_the_configuration_of_the_how_to_is_its_backends(root: Path, tmp_path: Path) -> None:
    text = (root / "docs" / "how-to" / "write-a-lease-backend.md").read_text(encoding="utf-8")
    section = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[1]
    places = '[source]\ntype = "embedded"\npath = "store"\n[lake]\ntype = "iceberg"\nwarehouse = "lake"\n'
    (tmp_path / "lakeward.toml").write_text(places + section, encoding="utf-8")

    options = load_config(tmp_path / "lakeward.toml", {}).lease_options

    assert (options.address, options.timeout_s) == ("leases.example:8650", 5.0)
    with pytest.raises(LeaseError, match="open raised"):
        LeaseBackend.load("desk", (), msgspec.structs.replace(options, address="127.0.0.1:1")).open()
