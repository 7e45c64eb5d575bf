"""Convert one value to its key's type. msgspec converts; here is what TOML, environment and flags need besides."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

from lakeward.errors import ConfigError
from lakeward.model.durations import parse_duration
from lakeward.model.sizes import parse_size

if TYPE_CHECKING:
    from lakeward.config.keys import Key

SECONDS_MOST = 10**9
"""About 31 years: a wait of more than 292 years is an error of the system."""
WHOLE_NUMBER_MOST = 2**63 - 1
_YES_OR_NO = {"yes": True, "on": True, "no": False, "off": False}
"""Words besides those that msgspec reads: `true`, `false`, `1`, `0`."""


def convert(where: str, key: Key, value: object, *, is_text: bool = False) -> Any:  # noqa: ANN401 - of the key's type
    """Convert a value to the key's type and check its bounds.

    `where` is the place, for the error: `lakeward.toml: service.rounds`. The value is as `tomllib` gives it; with
    `is_text`, a text from the environment or a flag, which may stand for any type.

    Raises:
        ConfigError: wrong type, or outside the bounds.
    """
    found = value
    try:
        given = _prepared(key, _from_text(key, value) if is_text and isinstance(value, str) else value)
        found = msgspec.convert(given, key.plain, strict=not is_text, dec_hook=_path)
        if isinstance(found, float) and not math.isfinite(found):
            raise ConfigError(where, key.expected, found)
        most = SECONDS_MOST if key.duration else WHOLE_NUMBER_MOST
        if isinstance(found, int | float) and found > most:
            raise ConfigError(where, f"{key.expected}, at most {most}", found)
        return msgspec.convert(found, key.annotation, dec_hook=_path)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(where, key.expected, found, key.hint(found)) from error


def _from_text(key: Key, text: str) -> object:
    match key.shape:
        case inspect.BoolType():
            return _YES_OR_NO.get(text.lower(), text)
        case inspect.VarTupleType() | inspect.ListType():
            return [part.strip() for part in text.split(",") if part.strip()]
        case inspect.DictType():
            return tomllib.loads(f"value = {text}")["value"]
        case inspect.AnyType():
            try:
                return tomllib.loads(f"value = {text}")["value"]
            except tomllib.TOMLDecodeError:
                return text
        case _:
            return text


def _prepared(key: Key, value: object) -> object:
    """Turn a duration into seconds, a size into bytes, and the values of a table of texts into texts."""
    if key.duration and isinstance(value, str):
        seconds = parse_duration(value)
        return value if seconds is None else seconds
    if key.size and isinstance(value, str):
        size_bytes = parse_size(value)
        return value if size_bytes is None else size_bytes
    if isinstance(value, Mapping) and isinstance(key.shape, inspect.DictType):
        return _texts(value) if isinstance(key.shape.value_type, inspect.StrType) else value
    return value


def _texts(value: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Join nested tables by dots: in TOML, `spark.ui.port = 1` is a table in a table, and is meant as one name."""
    flat: dict[str, object] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            flat.update(_texts(item, f"{prefix}{name}."))
        elif isinstance(item, bool):
            flat[prefix + name] = str(item).lower()
        else:
            flat[prefix + name] = str(item) if isinstance(item, int | float) else item
    return flat


def _path(wanted: type[Any], value: object) -> object:
    if wanted is Path and isinstance(value, str | Path):
        return Path(value)
    raise ValueError(value)
