"""The tutorial, run from its first command to its last in an empty directory, once for each lake."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "lake-paimon" / "tests" / "kit"))

from lakeward_paimon_kit.reader import python_with_pypaimon

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-table.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


OTHERS = {"iceberg": "paimon", "paimon": "pyiceberg"}
"""What a block has in it that is for the other lake."""


def script(language: str, code: str) -> list[str]:
    """Return the command that runs a block."""
    if language == "python":
        python = python_with_pypaimon() if "pypaimon" in code else sys.executable
        return [str(python), "-c", code]
    return ["bash", "-euc", re.sub(r"^\$ ", "", code, flags=re.MULTILINE)]


@pytest.mark.spark
@pytest.mark.parametrize("lake", OTHERS)
def test_the_tutorial_runs(tmp_path: Path, lake: str) -> None:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("LAKEWARD_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    blocks = [one for one in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if OTHERS[lake] not in one[1]]
    assert len(blocks) > 3, "the page has lost its blocks"
    for language, code in blocks:
        done = subprocess.run(
            script(language, code),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
