from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from lakeward.config.sections import build_options
from lakeward.errors import ConfigError, PluginError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    path: Path = field(metadata={"path": True})
    codec: Literal["zstd", "none"] = "zstd"
    limit: int | None = field(default=None, metadata={"least": 1, "most": 9})
    catalog: Mapping[str, Any] = field(default_factory=dict)


def test_options_are_built_with_their_types(tmp_path: Path) -> None:
    built = build_options(Options, {"path": "x", "limit": 3, "catalog": {"a": {"b": 1}}}, "lake", tmp_path)
    assert built == Options(path=tmp_path / "x", limit=3, catalog={"a": {"b": 1}})


@pytest.mark.parametrize(
    ("mapping", "text"),
    [
        ({}, "lake.path"),
        ({"path": "x", "codec": "lzo"}, "lake.codec: expected one of 'zstd', 'none', found 'lzo'"),
        ({"path": "x", "limit": 10}, "lake.limit: expected a whole number at least 1 at most 9, found 10"),
        ({"path": "x", "catalog": []}, "lake.catalog: expected a table"),
        ({"path": "x", "limits": 1}, "Did you mean 'limit'?"),
        ({"path": 3}, "lake.path: expected a path"),
    ],
)
def test_a_wrong_option_is_refused_by_name(mapping: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_options(Options, mapping, "lake")
    assert text in str(caught.value)


def test_options_that_are_no_dataclass_break_the_contract() -> None:
    with pytest.raises(PluginError, match="a dataclass"):
        build_options(int, {}, "lake")
