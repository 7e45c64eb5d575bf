"""The tutorial, run from its first command to its last in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-table.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def script(language: str, code: str) -> list[str]:
    """Return the command that runs a block."""
    if language == "python":
        return [sys.executable, "-c", code]
    return ["bash", "-euc", re.sub(r"^\$ ", "", code, flags=re.MULTILINE)]


@pytest.mark.spark
def test_the_tutorial_runs(tmp_path: Path) -> None:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("LAKEWARD_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
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
