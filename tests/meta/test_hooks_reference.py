from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from lakeward.hooks.reference import render
from lakeward.hooks.spec import LeaseSpec

if TYPE_CHECKING:
    from pathlib import Path

HOOKS = [name for name in vars(LeaseSpec) if not name.startswith("_")]


def test_the_page_of_the_hooks_is_what_the_code_says(root: Path) -> None:
    page = root / "docs" / "reference" / "hooks.md"

    assert page.read_text(encoding="utf-8") == render(), "write it anew: lakeward.hooks.reference.render()"


def test_there_are_five_hooks() -> None:
    assert HOOKS == ["acquire", "release", "drop", "on_failover", "serialize_state"]


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_is_on_the_page_with_its_arguments(hook: str) -> None:
    arguments = inspect.signature(getattr(LeaseSpec, hook)).parameters

    section = render().split(f"## `{hook}`\n")[1].split("\n## ")[0]

    assert all(f"- `{name}`: " in section for name in arguments if name != "self")


def test_the_reference_names_each_value_with_its_fields(root: Path) -> None:
    text = (root / "docs" / "reference" / "hooks.md").read_text(encoding="utf-8")
    for name in ("Lease", "Protection", "Failover", "FailoverAction", "FailoverAnswer", "SnapshotLeases"):
        assert f"### `{name}`" in text
    assert "- `held: Mapping[TableBucket, int]`" in text
    assert "- `RELEASE`" in text
