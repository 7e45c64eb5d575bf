"""Checks of single values: type, range and allowed words, with errors that name the key."""

from __future__ import annotations

import math
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.config.durations import WORDS as DURATION
from lakeward.config.durations import parse_duration
from lakeward.errors import ConfigError

if TYPE_CHECKING:
    from lakeward.config.keys import Key

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path (text)"}
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class _Mismatch(Exception):  # noqa: N818 - never leaves this module
    """A value is not of the wanted type."""


def check(where: str, key: Key, value: object) -> Any:  # noqa: ANN401 - of the key's type
    """Convert a value read from TOML to the key's type.

    Args:
        where: the place, for the error; `lakeward.toml: service.rounds`.
        key: what the value is for.
        value: as `tomllib` gives it.

    Returns:
        The value, of the key's type.

    Raises:
        ConfigError: wrong type, or outside the range.
    """
    try:
        converted = _convert(key.annotation, _seconds(key, value))
    except _Mismatch as error:
        raise ConfigError(where, describe(key), value) from error
    _check_range(where, key, converted)
    return converted


def parse(where: str, key: Key, text: str) -> Any:  # noqa: ANN401 - of the key's type
    """Convert a text from the environment or a flag to the key's type; arguments and errors as `check`."""
    try:
        value = text if key.metadata.get("duration") else _from_text(_plain(key.annotation), text)
    except _Mismatch as error:
        raise ConfigError(where, describe(key), text) from error
    return check(where, key, value)


def is_mapping(annotation: Any) -> bool:  # noqa: ANN401 - any annotation
    """True where the key's value is a table of further keys."""
    plain = _plain(annotation)
    origin = typing.get_origin(plain) or plain
    return isinstance(origin, type) and issubclass(origin, Mapping)


def describe(key: Key) -> str:
    """Say what a right value would be: type and range, in words."""
    if key.metadata.get("duration"):
        return DURATION
    words = [_type_words(_plain(key.annotation))]
    bounds = {"least": "at least {}", "above": "above {}", "most": "at most {}"}
    words += [text.format(key.metadata[name]) for name, text in bounds.items() if name in key.metadata]
    allowed = key.metadata.get("allowed")
    if allowed:
        return "one of " + ", ".join(f"{word!r}" for word in allowed)
    return " ".join(words)


def _seconds(key: Key, value: object) -> object:
    """Turn the text of a duration into seconds; anything else stays as it is."""
    if not (key.metadata.get("duration") and isinstance(value, str)):
        return value
    seconds = parse_duration(value)
    return _expect(seconds is not None, seconds)


def _type_words(annotation: Any) -> str:  # noqa: ANN401 - any annotation
    origin = typing.get_origin(annotation) or annotation
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(word) for word in typing.get_args(annotation))
    if origin in {tuple, list}:
        return "a list of texts"
    if is_mapping(annotation):
        return "a table"
    return _WORDS.get(origin, "a value")


def _plain(annotation: Any) -> Any:  # noqa: ANN401 - any annotation
    """Take `None` out of a union: TOML has no null, an unset key is left out."""
    if typing.get_origin(annotation) not in {typing.Union, types.UnionType}:
        return annotation
    rest = [part for part in typing.get_args(annotation) if part is not type(None)]
    return rest[0] if len(rest) == 1 else typing.Any


def _convert(annotation: Any, value: object) -> Any:  # noqa: ANN401 - of the annotation's type
    plain = _plain(annotation)
    origin = typing.get_origin(plain) or plain
    if plain is typing.Any:
        return value
    if value is None and plain is not annotation:
        return None
    if origin is typing.Literal:
        return _expect(value in typing.get_args(plain), value)
    if origin in {tuple, list}:
        return origin(_convert(_inner(plain), item) for item in _expect(isinstance(value, list | tuple), value))
    if is_mapping(plain):
        return _mapping(plain, _expect(isinstance(value, Mapping), value))
    return _scalar(origin, value)


def _scalar(wanted: Any, value: object) -> Any:  # noqa: ANN401 - of the wanted type
    if wanted is bool:
        return _expect(isinstance(value, bool), value)
    if wanted is int:
        return _expect(isinstance(value, int) and not isinstance(value, bool), value)
    if wanted is float:
        number = _expect(isinstance(value, int | float) and not isinstance(value, bool), value)
        return float(_expect(math.isfinite(number), number))
    if wanted is Path:
        return Path(_expect(isinstance(value, str | Path), value))
    return _expect(isinstance(value, wanted) if isinstance(wanted, type) else True, value)


def _mapping(annotation: Any, value: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - any annotation
    inner = typing.get_args(annotation)[1] if len(typing.get_args(annotation)) > 1 else typing.Any
    if inner is str:
        return {name: _as_text(item) for name, item in _flat(value).items()}
    return {name: _convert(inner, item) for name, item in value.items()}


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Join nested tables by dots: in TOML, `spark.ui.port = 1` is a table in a table, and is meant as one name."""
    flat: dict[str, Any] = {}
    for name, item in value.items():
        inner = _flat(item, f"{prefix}{name}.") if isinstance(item, Mapping) else {f"{prefix}{name}": item}
        flat.update(inner)
    return flat


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(_expect(isinstance(value, str | int | float), value))


def _inner(annotation: Any) -> Any:  # noqa: ANN401 - any annotation
    arguments = typing.get_args(annotation)
    return arguments[0] if arguments else typing.Any


def _expect(fits: bool, value: Any) -> Any:  # noqa: ANN401 - gives back what it got
    if not fits:
        raise _Mismatch
    return value


def _from_text(annotation: Any, text: str) -> object:  # noqa: ANN401 - any annotation
    origin = typing.get_origin(annotation) or annotation
    if origin is bool:
        return text.lower() in _expect(text.lower() in _TRUE | _FALSE, _TRUE)
    if origin in {int, float}:
        return _number(origin, text)
    if origin in {tuple, list}:
        return [part.strip() for part in text.split(",") if part.strip()]
    if is_mapping(annotation) or annotation is typing.Any:
        return _toml_value(text, strict=annotation is not typing.Any)
    return text


def _number(wanted: Any, text: str) -> object:  # noqa: ANN401 - int or float
    try:
        return wanted(text)
    except ValueError as error:
        raise _Mismatch from error


def _toml_value(text: str, *, strict: bool) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        if strict:
            raise _Mismatch from error
        return text


def _check_range(where: str, key: Key, value: Any) -> None:  # noqa: ANN401 - of the key's type
    bounds = key.metadata
    if value is None:
        return
    wrong = (
        ("least" in bounds and value < bounds["least"])
        or ("above" in bounds and value <= bounds["above"])
        or ("most" in bounds and value > bounds["most"])
        or ("allowed" in bounds and value not in bounds["allowed"])
    )
    if wrong:
        raise ConfigError(where, describe(key), value)
