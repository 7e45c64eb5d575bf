"""The keys of a configuration section, read off the dataclass that declares them."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from lakeward.errors import PluginError

if typing.TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its name, type, default (MISSING: it must be given) and the metadata of its field."""

    name: str
    annotation: Any
    default: Any
    metadata: Mapping[str, Any]

    @property
    def required(self) -> bool:
        """True where there is no default."""
        return self.default is MISSING

    @property
    def description(self) -> str:
        """The key's line in the reference."""
        return str(self.metadata.get("description", ""))

    @property
    def secret(self) -> bool:
        """True where the value must never be shown."""
        return bool(self.metadata.get("secret", False))


def keys_of(section: type[Any]) -> dict[str, Key]:
    """Read the keys of a section.

    Args:
        section: a dataclass; its fields are the keys.

    Returns:
        Key by name, in the order of the fields.

    Raises:
        PluginError: not a dataclass, or its annotations cannot be read at run time.
    """
    if not is_dataclass(section):
        message = f"{section!r}: the options of a plugin are a dataclass"
        raise PluginError(message)
    hints = _hints(section)
    return {
        field.name: Key(field.name, hints[field.name], _default(field), field.metadata) for field in fields(section)
    }


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name is meant, perhaps.

    Args:
        name: what was written.
        known: all names that there are.

    Returns:
        One sentence: the nearest name, or all of them where none is near.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(names)}." if names else ""


def _hints(section: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(section)
    except NameError as error:
        message = f"options {section.__qualname__}: its field types must be importable at run time ({error})"
        raise PluginError(message) from error


def _default(field: Any) -> Any:  # noqa: ANN401 - a field and its default are of any type
    return field.default if field.default_factory is MISSING else field.default_factory()
