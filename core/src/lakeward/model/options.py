"""How a section of the configuration declares its keys: those of the core and those of plugins alike.

A section is a subclass of `Options`. Each field is a key: its type, its default (none: the key must be given) and, in
`Annotated[..., Meta(...)]`, its description and bounds. The reference, the checks, the messages and
`lakeward config show` are made from these.

    class PondOptions(Options, frozen=True, kw_only=True):
        path: Annotated[LocalPath, Meta(description="Where the pond lies.")]
        depth_m: Annotated[float, Meta(gt=0, description="How deep it is.")] = 2.0
        password: Annotated[Secret, Meta(description="Opens the gate.")] = ""
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from lakeward.model.secrets import MASK, is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ByteSize", "Duration", "LocalPath", "Meta", "Options", "Secret", "extra_of", "secrets_of"]

Secret = Annotated[str, Meta(extra={"secret": True})]
"""A text that is never shown. For another type: `Meta(extra={"secret": True})`."""
LocalPath = Annotated[str, Meta(extra={"path": True})]
"""A path relative to the configuration file; a URI stays as it is.

Where that depends on other keys, `Meta(extra={"path": function})` asks a function of the section's given values.
"""
Duration = Annotated[float, Meta(ge=0, extra={"duration": True})]
"""Seconds; may be written as a text with a unit, such as `"10m"`."""
ByteSize = Annotated[int, Meta(ge=0, extra={"size": True})]
"""Bytes; may be written as a text with a unit, such as `"64 MiB"`."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one section. `repr` hides secrets."""

    def __repr__(self) -> str:
        """Show each key; a secret that is set is masked."""
        hints = typing.get_type_hints(type(self), include_extras=True)
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        shown = {
            name: MASK if value and _is_secret(name, value, hints[name]) else repr(value)
            for name, value in values.items()
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in shown.items())})"


def extra_of(annotation: Any) -> dict[str, Any]:  # noqa: ANN401 - any annotation
    """Return what the `Meta` of an annotation say in `extra`; a later one wins."""
    found: dict[str, Any] = {}
    for meta in getattr(annotation, "__metadata__", ()):
        found.update(meta.extra or {})
    return found


def secrets_of(options: Options) -> frozenset[str]:
    """Return the texts that are never shown: values of secret keys, and of properties that are named like secrets."""
    hints = typing.get_type_hints(type(options), include_extras=True)
    found: set[str] = set()
    for name in options.__struct_fields__:
        value = getattr(options, name)
        found.update(_secrets(value, secret=_is_secret(name, value, hints[name])))
    return frozenset(found)


def _is_secret(name: str, value: object, annotation: Any) -> bool:  # noqa: ANN401 - any annotation
    return bool(extra_of(annotation).get("secret")) or (isinstance(value, str) and is_secret_name(name))


def _secrets(value: object, *, secret: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secrets(item, secret=secret or is_secret_name(str(name)))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _secrets(item, secret=secret)
    elif secret and not isinstance(value, bool | int | float | None) and str(value):
        yield str(value)
