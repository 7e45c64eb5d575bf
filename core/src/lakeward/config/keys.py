"""The keys of a configuration section, read off the struct that declares them."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect

from lakeward.errors import PluginError
from lakeward.model import durations, sizes
from lakeward.model.near_names import did_you_mean
from lakeward.model.options import Options
from lakeward.model.secrets import is_secret_name

if typing.TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_DESCRIPTIONS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.StrType: "a text",
    inspect.VarTupleType: "a list of texts",
    inspect.ListType: "a list of texts",
    inspect.DictType: "a table",
    inspect.CustomType: "a path (text)",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its type with bounds (`annotation`) and without (`plain`), and msgspec's description of the type."""

    name: str
    annotation: Any
    plain: Any
    default: Any
    description: str
    extra: Mapping[str, Any]
    shape: inspect.Type

    @property
    def required(self) -> bool:
        """True where there is no default."""
        return self.default is msgspec.NODEFAULT

    @property
    def secret(self) -> bool:
        """True where the value must never be shown: it says so, or it is a text that is named like a secret."""
        return bool(self.extra.get("secret")) or (self.plain is str and is_secret_name(self.name))

    @property
    def duration(self) -> bool:
        """True where a text such as `10m` is seconds: the type says so, or the name ends in `_s`."""
        return bool(self.extra.get("duration")) or (
            isinstance(self.shape, inspect.FloatType) and self.name.endswith("_s")
        )

    @property
    def size(self) -> bool:
        """True where a text such as `64 MiB` is bytes."""
        return bool(self.extra.get("size"))

    @property
    def table(self) -> bool:
        """True where the value is a table of further names."""
        return isinstance(self.shape, inspect.DictType)

    @property
    def expected(self) -> str:
        """The type and the bounds as text, for messages and the reference."""
        if self.duration:
            return f"{_describe(self.shape, durations.EXPECTED)}, {durations.AS_TEXT}"
        if self.size:
            return f"{_describe(self.shape, sizes.EXPECTED)}, {sizes.AS_TEXT}"
        if isinstance(self.shape, inspect.LiteralType):
            return "one of " + ", ".join(repr(value) for value in _literals(self.plain))
        return _describe(self.shape)

    def hint(self, found: object) -> str:
        """Return what the key says of a value that is not allowed, or the one that was meant where one is near.

        Else the text is empty.
        """
        said = self.extra.get("refused", {})
        if isinstance(found, str) and found in said:
            return str(said[found])
        choices = _literals(self.plain) if isinstance(self.shape, inspect.LiteralType) else []
        return did_you_mean(str(found), map(str, choices))

    def is_path(self, given: Mapping[str, Any]) -> bool:
        """Return whether the value is a path; a plugin may decide this by the given values of its section."""
        declared = self.extra.get("path", False)
        return bool(declared(given) if callable(declared) else declared)


def keys_of(section: type[Any]) -> dict[str, Key]:
    """Read the keys of a section, a subclass of `Options`, by name; its fields are the keys, in their order.

    Raises:
        PluginError: another class, or its annotations cannot be read at run time.
    """
    if not issubclass(section, Options):
        message = f"{section!r}: the options of a plugin are a subclass of lakeward.model.options.Options"
        raise PluginError(message)
    try:
        plain = typing.get_type_hints(section)
        return {field.name: _key(field, plain[field.name]) for field in msgspec.structs.fields(section)}
    except (NameError, TypeError) as error:
        message = f"options {section.__qualname__}: its field types cannot be read at run time ({error})"
        raise PluginError(message) from error


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for a name that is not known: the nearest of the known names, or all of them where none is near."""
    names = sorted(known)
    return did_you_mean(name, names) or (f"Known: {', '.join(names)}." if names else "")


def _key(field: msgspec.structs.FieldInfo, plain: Any) -> Key:  # noqa: ANN401 - any annotation
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    shape, description = inspect.type_info(field.type), ""
    extra: dict[str, Any] = {}
    while True:
        if isinstance(shape, inspect.Metadata):
            description = (shape.extra_json_schema or {}).get("description") or description
            extra = {**extra, **(shape.extra or {})}
            shape = shape.type
        elif isinstance(shape, inspect.UnionType) and len(rest := _without_none(shape)) == 1:
            shape = rest[0]  # TOML has no null: a key without a value is left out
        else:
            return Key(field.name, field.type, plain, default, description, extra, shape)


def _without_none(union: inspect.UnionType) -> list[inspect.Type]:
    return [one for one in union.types if not isinstance(one, inspect.NoneType)]


def _literals(annotation: Any) -> list[Any]:  # noqa: ANN401 - any annotation
    """Return the values of a `Literal`, perhaps in a union, in the order in which they are written."""
    if typing.get_origin(annotation) is typing.Literal:
        return list(typing.get_args(annotation))
    return [value for part in typing.get_args(annotation) for value in _literals(part)]


def _describe(shape: inspect.Type, name: str = "") -> str:
    """Return the type, or the name that stands for it, and its bounds."""
    if isinstance(shape, inspect.DictType) and isinstance(shape.key_type, inspect.LiteralType):
        return f"a table of {_choices(shape.key_type)}, each one of {_choices(shape.value_type)}"
    text = name or next((text for kind, text in _DESCRIPTIONS.items() if isinstance(shape, kind)), "a value")
    if isinstance(shape, inspect.IntType | inspect.FloatType):
        bounds = (("at least", shape.ge), ("above", shape.gt), ("at most", shape.le), ("below", shape.lt))
        return " ".join([text, *(f"{border} {bound}" for border, bound in bounds if bound is not None)])
    return text


def _choices(shape: inspect.Type) -> str:
    values = shape.values if isinstance(shape, inspect.LiteralType) else ()
    return ", ".join(repr(value) for value in values)
