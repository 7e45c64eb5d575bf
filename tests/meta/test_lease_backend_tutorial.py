"""The tutorial of the lease backend, followed word by word from an empty directory, in an environment of its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-lease-backend.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)


@pytest.fixture
def environment(linked_environment: Callable[[Callable[[str], bool]], dict[str, str]]) -> dict[str, str]:
    return linked_environment(lambda _: True)


@pytest.mark.network
def test_the_tutorial_of_the_lease_backend_runs(tmp_path: Path, environment: dict[str, str]) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    said = []
    for language, title, code in blocks:
        if title:
            (tmp_path / title).write_text(code, encoding="utf-8")
            continue
        assert language == "console", f"a block that is neither a file nor commands: {code}"
        for command in code.splitlines():
            assert command.startswith("$ ")
            done = subprocess.run(
                ["bash", "-euc", f"set -o pipefail\n{command.removeprefix('$ ').removeprefix('! ')}"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                encoding="utf-8",
                check=False,
            )
            said.append(done.stdout + done.stderr)
            assert (done.returncode != 0) == command.startswith("$ ! "), f"{command}\n{said[-1]}"
    everything = "\n".join(said)
    for told in (
        r"test_a_restarted_service_gets_its_lease_back",
        r"SKIPPED .*stateful",
        r"lease backend +polite +lakeward-lease-polite +0\.1\.0",
        r"lease\.most +500",
        r"lease\.most: expected",
        r"LAKEWARD_PLUGINS: expected installed plugins: .*'pollite'\. Did you mean 'polite'",
    ):
        assert re.search(told, everything), f"{told} not in\n{everything}"
