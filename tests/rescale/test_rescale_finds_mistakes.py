"""Runs that kill and rescale gangs of real processes find mistakes that are made on purpose."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent
_KITS = (_HERE / "kit", _HERE.parent / "core" / "kit", _HERE.parent / "e2e" / "kit")
pytestmark = [pytest.mark.crash, pytest.mark.slow]


@pytest.mark.parametrize("mistake", ["forgets-open-rows", "keeps-rows-of-others"])
def test_a_run_whose_restores_lose_or_double_rows_is_wrong_and_is_kept(tmp_path: Path, mistake: str) -> None:
    command = [sys.executable, "-m", "lakeward_rescale", "--runs", "2", "--directory", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, _KITS))}
    done = subprocess.run(
        [*command, "--mistake", mistake],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=200,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert re.search(r"WRONG .* records were read", done.stdout), "rows do not add up"
    assert " 0 hung" in done.stdout, "it is not found by a launch that fails again and again"
    assert list(tmp_path.glob("seed-*/scenario.json")), "what happened can be looked at"
