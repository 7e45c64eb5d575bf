from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from lakeward.config.sections import build_options
from lakeward.errors import ConfigError, PluginError
from lakeward.model.options import Meta, Options, Secret
from lakeward.model.secrets import MASK


class PondOptions(Options, frozen=True, kw_only=True):
    path: Annotated[Path, Meta(extra={"path": True})]
    codec: Literal["zstd", "none"] = "zstd"
    bank: Annotated[Literal["sand", "reed"], Meta(extra={"refused": {"rock": "Frogs do not climb."}})] = "sand"
    limit: Annotated[int, Meta(ge=1, le=9)] | None = None
    catalog: Mapping[str, Any] = msgspec.field(default_factory=dict)
    password: Secret = ""


def test_options_are_built_with_their_types(tmp_path: Path) -> None:
    built = build_options(PondOptions, {"path": "x", "limit": 3, "catalog": {"a": {"b": 1}}}, "lake", tmp_path)
    assert built == PondOptions(path=tmp_path / "x", limit=3, catalog={"a": {"b": 1}})


@pytest.mark.parametrize(
    ("mapping", "text"),
    [
        ({}, "lake.path"),
        ({"path": "x", "codec": "lzo"}, "lake.codec: expected one of 'zstd', 'none', found 'lzo'"),
        ({"path": "x", "bank": "rock"}, "lake.bank: expected one of 'sand', 'reed', found 'rock'. Frogs do not climb."),
        ({"path": "x", "bank": "sadn"}, "Did you mean 'sand'?"),
        ({"path": "x", "limit": 10}, "lake.limit: expected a whole number at least 1 at most 9, found 10"),
        ({"path": "x", "catalog": []}, "lake.catalog: expected a table"),
        ({"path": "x", "limits": 1}, "Did you mean 'limit'?"),
        ({"path": 3}, "lake.path: expected a path"),
    ],
)
def test_a_wrong_option_is_refused_by_name(mapping: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_options(PondOptions, mapping, "lake")
    assert text in str(caught.value)


def test_options_of_another_kind_break_the_contract() -> None:
    with pytest.raises(PluginError, match=r"a subclass of lakeward\.model\.options\.Options"):
        build_options(int, {}, "lake")


def test_a_secret_is_in_no_text_of_the_options() -> None:
    assert "hush" not in repr(PondOptions(path=Path("x"), password="hush"))  # noqa: S106 - no secret of anybody
    assert f"password={MASK}" in repr(PondOptions(path=Path("x"), password="hush"))  # noqa: S106 - as above
    assert "password=''" in repr(PondOptions(path=Path("x")))
