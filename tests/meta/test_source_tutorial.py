"""The tutorial of the source, followed word by word from an empty directory, in an environment of its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-source.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
LINES_MOST = 80
"""Of the source: what is left to write."""


def test_the_source_of_the_tutorial_is_short() -> None:
    (code,) = [code for _, title, code in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if title.endswith(".py")]
    assert len([line for line in code.splitlines() if line]) <= LINES_MOST


@pytest.mark.network
@pytest.mark.spark
@pytest.mark.slow
def test_the_tutorial_of_the_source_runs(
    tmp_path: Path, linked_environment: Callable[[Callable[[str], bool]], dict[str, str]]
) -> None:
    environment = linked_environment(lambda _: True)
    said = []

    def run(*words: str, fails: bool = False) -> None:
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=False)
        said.append(done.stdout + done.stderr)
        assert (done.returncode != 0) == fails, f"{words}\n{said[-1]}"

    for language, title, code in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if title:
            (tmp_path / title).write_text(code, encoding="utf-8")
        elif language == "python":
            run("python", "-c", code)
        else:
            assert language == "console", f"a block that is neither a file nor commands: {code}"
            for line in code.splitlines():
                assert line.startswith("$ ")
                command = line.removeprefix("$ ").removeprefix("! ")
                run("bash", "-euc", f"set -o pipefail\n{command}", fails=line.startswith("$ ! "))
    everything = "\n".join(said)
    for told in (
        r"source +lines +lakeward-source-lines +0\.1\.0",
        r"(?s)shop\.clicks +new .*2 rows wait\.",
        r"shop\.clicks +ok ",
        r"log\.jsonl, line 5: expected a JSON object, found b'oops",
    ):
        assert re.search(told, everything), f"{told} not in\n{everything}"
