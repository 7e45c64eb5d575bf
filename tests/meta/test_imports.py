from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest


def test_imports_keep_the_contracts(root: Path) -> None:
    """import-linter's contracts in pyproject.toml."""
    if not importlib.util.find_spec("importlinter"):
        pytest.skip("not installed: importlinter")
    words = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    done = subprocess.run(words, cwd=root, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
