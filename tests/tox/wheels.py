"""Install distributions of this workspace from built wheels, into the environment of the Python that runs this.

    wheels.py [--lowest] NAME... [-- REQUIREMENT...]

NAME is `core`, `all` or a folder of `plugins/`, perhaps with extras: `core[java]`; `plugin-FOLDER`, as tox calls the
environment of its tests, stands for the core and `FOLDER[test]`. What one of them or its extras needs of the plugins
here comes with it. A wheel is built once for each state of its sources, whichever environment asks first; its folder
is named by that state: so the installer sees by the address alone whether it has it already. `--lowest` installs the
oldest version that each dependency allows.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WHEELS = Path(os.environ.get("TOX_WORK_DIR", ROOT / ".tox")) / "wheels"
FETCHED = WHEELS / "fetched"
"""Made once an installation has asked the package index: the next ones look into the installer's cache first."""
PLUGIN_TESTS = "plugin-"
UV = [sys.executable, "-m", "uv"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One distribution of this workspace. `extras` with its brackets, or nothing."""

    folder: Path
    extras: str

    @classmethod
    def parse(cls, text: str) -> Wanted:
        """Read NAME or NAME[EXTRA,...]."""
        name, bracket, rest = text.partition("[")
        folder = ROOT / "core" if name == "core" else ROOT / "plugins" / name
        if not (folder / "pyproject.toml").is_file():
            sys.exit(f"wheels.py: no distribution {name!r}: expected core, all or a folder of plugins")
        return cls(folder, bracket + rest)

    def requirement(self) -> str:
        """Return what to install: name, extras and the wheel's address."""
        return f"{self._project()['name']}{self.extras} @ {_wheel(self.folder).as_uri()}"

    def dependencies(self) -> list[str]:
        """Return what it and its extras need from elsewhere: direct requirements, which are taken at their oldest."""
        return [need for need in self._needs() if not need.startswith("lakeward")]

    def siblings(self) -> list[Wanted]:
        """Return the plugins of this workspace that it and its extras need, in the order in which they are named."""
        names = [re.match(r"lakeward-([\w-]+)", need) for need in self._needs()]
        return [Wanted(ROOT / "plugins" / name[1], "") for name in names if name]

    def _needs(self) -> list[str]:
        project = self._project()
        needs = list(project["dependencies"])
        for extra in filter(None, self.extras.strip("[]").split(",")):
            needs += project["optional-dependencies"][extra.strip()]
        return [str(need) for need in needs]

    def _project(self) -> dict[str, Any]:
        document = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))
        return dict(document["project"])


def main(words: list[str]) -> int:
    """Build what is missing and install it.

    Args:
        words: the command line, without the script.

    Returns:
        The installer's exit code.
    """
    end = words.index("--") if "--" in words else len(words)
    names, further = words[:end], words[end + 1 :]
    lowest = "--lowest" in names
    wanted = wanted_by([name for name in names if name != "--lowest"])
    requirements = [one.requirement() for one in wanted]
    if lowest:
        further = [
            "--upgrade",
            "--resolution=lowest-direct",
            *(need for one in wanted for need in one.dependencies()),
            *further,
        ]
    return _install([*requirements, *further], cached=not further)


def wanted_by(names: list[str]) -> list[Wanted]:
    """Return the distributions that names stand for, with what they need of this workspace."""
    return with_siblings([Wanted.parse(name) for name in _expand(names)])


def with_siblings(wanted: list[Wanted]) -> list[Wanted]:
    """Add what these need of this workspace, and what that needs; each folder once."""
    whole = list(wanted)
    for one in whole:  # it grows meanwhile
        for sibling in one.siblings():
            if all(each.folder != sibling.folder for each in whole):
                whole.append(sibling)
    return whole


def _install(words: list[str], *, cached: bool) -> int:
    """Install, from the cache alone where that will do.

    pyspark comes as sources of 450 MB. Whether the cached wheel of them is still good is a question that some mirrors
    answer with "no" each time, and then it is built again for each environment.
    """
    install = [*UV, "pip", "install", "--quiet", *words]
    if cached and FETCHED.exists():
        done = subprocess.run([*install, "--offline"], check=False, stderr=subprocess.DEVNULL)
        if done.returncode == 0:
            return 0
    code = subprocess.run(install, check=False).returncode
    if code == 0:
        FETCHED.touch()
    return code


def _expand(names: list[str]) -> list[str]:
    """Put each distribution in the place of `all`, the core with the extras that `all` was given; and so on."""
    plugins = sorted(path.parent.name for path in (ROOT / "plugins").glob("*/pyproject.toml"))
    whole = []
    for name in names:
        base, bracket, rest = name.partition("[")
        if base == "all":
            whole += ["core" + bracket + rest, *plugins]
        elif name.startswith(PLUGIN_TESTS):
            whole += ["core", name.removeprefix(PLUGIN_TESTS) + "[test]"]
        else:
            whole.append(name)
    return whole


def _wheel(folder: Path) -> Path:
    """Return the wheel of a distribution, as its sources are now."""
    place = WHEELS / f"{folder.name}-{_state(folder)}"
    if not place.is_dir():
        WHEELS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=WHEELS) as fresh:
            build = [*UV, "build", "--quiet", "--wheel", "--no-create-gitignore", "--out-dir", f"{fresh}/out"]
            subprocess.run([*build, str(folder)], check=True)
            try:
                Path(fresh, "out").rename(place)
            except OSError:
                if not place.is_dir():
                    raise
                # Another environment has built the same meanwhile: either will do.
    return next(place.glob("*.whl"))


def _state(folder: Path) -> str:
    digest = hashlib.sha256()
    sources = [path for path in folder.glob("src/**/*") if path.is_file() and "__pycache__" not in path.parts]
    for path in sorted([folder / "pyproject.toml", folder / "README.md", *sources]):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(folder)} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
