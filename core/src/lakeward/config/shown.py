"""The lines of `lakeward config show`: each key, its value and where it came from; secrets are masked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lakeward.config.keys import Key, keys_of
from lakeward.config.loader import SECTIONS, section_keys
from lakeward.config.sections import DEFAULT
from lakeward.config.tables import table_section
from lakeward.model.options import Options, secrets_of
from lakeward.model.secrets import MASK, is_secret_name, mask_uri

if TYPE_CHECKING:
    from lakeward.config.loaded import Loaded


@dataclass(frozen=True, slots=True)
class ShownKey:
    """One line of `lakeward config show`."""

    key: str
    value: Any
    origin: str


def shown(loaded: Loaded) -> tuple[ShownKey, ...]:
    """List every key in the order of the reference; `tables` only as far as the file gives them."""
    lines: list[ShownKey] = []
    for section in SECTIONS:
        core = section_keys(section)
        lines += _section(section, core, getattr(loaded.settings, section), loaded)
        options = {
            "source": loaded.source_options,
            "lake": loaded.lake_options,
            "lease": loaded.lease_options,
        }.get(section)
        if options is not None:
            own = {name: key for name, key in keys_of(type(options)).items() if name not in core}
            lines += _section(section, own, options, loaded)
    return (*lines, *_tables(loaded))


def secret_values(loaded: Loaded) -> frozenset[str]:
    """Return the texts that `shown` masks: values of secret keys, and of properties named like secrets."""
    options = (loaded.source_options, loaded.lake_options, loaded.lease_options)
    sections = (*(getattr(loaded.settings, section) for section in SECTIONS), *options)
    return frozenset().union(*(secrets_of(values) for values in sections if isinstance(values, Options)))


def _section(section: str, keys: Mapping[str, Key], values: Any, loaded: Loaded) -> list[ShownKey]:  # noqa: ANN401 - any section
    lines: list[ShownKey] = []
    for name, key in keys.items():
        dotted = f"{section}.{name}"
        value = getattr(values, name)
        if isinstance(value, Mapping) and value:
            lines += [_inner(f"{dotted}.{inner}", key, dotted, value[inner], loaded) for inner in value]
        else:
            lines.append(ShownKey(dotted, _plain(value, secret=key.secret), loaded.provenance.get(dotted, DEFAULT)))
    return lines


def _inner(dotted: str, key: Key, outer: str, value: Any, loaded: Loaded) -> ShownKey:  # noqa: ANN401 - any value
    origin = loaded.provenance.get(dotted) or loaded.provenance.get(outer, DEFAULT)
    secret = key.secret or is_secret_name(dotted.removeprefix(outer))
    return ShownKey(dotted, _plain(value, secret=secret), origin)


def _tables(loaded: Loaded) -> list[ShownKey]:
    lines: list[ShownKey] = []
    for pattern, rule in loaded.settings.tables.items():
        for name, value in msgspec.structs.asdict(rule).items():
            dotted = f"{table_section(pattern)}.{name}"
            if dotted in loaded.provenance:
                lines.append(ShownKey(dotted, value, loaded.provenance[dotted]))
    return lines


def _plain(value: Any, *, secret: bool) -> Any:  # noqa: ANN401 - any value
    if secret:
        return MASK if value else value
    if isinstance(value, Mapping):
        return {name: _plain(item, secret=is_secret_name(str(name))) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item, secret=False) for item in value]
    if isinstance(value, str | Path):
        return mask_uri(str(value))
    return value
