from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakeward_ops.new_plugin.skeleton import skeleton

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


@pytest.mark.parametrize(("kind", "name"), [("lake", "puddle"), ("source", "pond")])
def test_the_code_of_the_how_to_is_what_plugins_new_writes(kind: str, name: str) -> None:
    page = (HOW_TO / f"write-a-{kind}.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    written = _without_indents("\n".join(skeleton(kind, name).values()))
    assert shown
    assert [block for block in shown if _without_indents(block) not in written] == []


@pytest.mark.parametrize(("kind", "name"), [("lake", "puddle"), ("source", "pond")])
def test_the_how_to_explains_each_file_of_the_package(kind: str, name: str) -> None:
    page = (HOW_TO / f"write-a-{kind}.md").read_text(encoding="utf-8")
    modules = {Path(file).name for file in skeleton(kind, name) if file.startswith("src/")}
    assert {one for one in modules - {"__init__.py", "py.typed"} if f"`{one}`" not in page} == set()


def test_the_code_of_the_how_to_for_rules_stands_in_the_files_that_it_names() -> None:
    page = (HOW_TO / "change-a-protocol-rule.md").read_text(encoding="utf-8")
    root = HOW_TO.parents[1]
    sections = re.split(r"^## \d\. ", page, flags=re.MULTILINE)[1:]
    assert len(sections) == 5
    for section in sections:
        file = next(re.finditer(r"`((?:core|tests|docs)/[\w/.]+)`", section))[1]
        (block, *_) = re.findall(r"^```(?:python|text)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
        assert _without_indents(block) in _without_indents((root / file).read_text(encoding="utf-8")), file


def test_the_code_of_the_how_to_for_keys_stands_in_the_product() -> None:
    page = (HOW_TO / "add-a-configuration-key.md").read_text(encoding="utf-8")
    declared, used = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    core = HOW_TO.parents[1] / "core" / "src" / "lakeward"
    section = declared.splitlines()[0]
    key = declared.splitlines()[1].split(":")[0].strip()
    settings = (core / "model" / "settings.py").read_text(encoding="utf-8").split(section)[1].split("\nclass ")[0]
    assert f"    {key}: Annotated[" in settings
    assert f"settings.lake.{key}" in used
    assert used.strip() in (core / "coordinator" / "effects" / "upkeep.py").read_text(encoding="utf-8")


def _without_indents(code: str) -> str:
    return "\n".join(line.strip() for line in code.splitlines())
