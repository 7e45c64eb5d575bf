"""The codec of data files and its level: the table's own properties, else the lake's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lakeward.errors import ConfigError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.tables import TablePath
    from lakeward_lake_iceberg.options import IcebergOptions

CODEC = "write.parquet.compression-codec"
LEVEL = "write.parquet.compression-level"
_CODECS = ("zstd", "snappy", "lz4", "gzip", "brotli", "uncompressed")
"""Iceberg's names."""
_UNCOMPRESSED = {"uncompressed": "none"}
"""What pyarrow calls them otherwise."""
_LEVELS = {"zstd": range(1, 23), "gzip": range(1, 10), "brotli": range(12)}
"""Levels of the codecs that have any."""


class Compression(NamedTuple):
    """A codec as pyarrow names it, and its level; None: the codec's own default, or the codec has none."""

    codec: str
    level: int | None


def compression_of(path: TablePath, properties: Mapping[str, str], options: IcebergOptions) -> Compression:
    """Return how data files of a table with these Iceberg properties are compressed; errors name its path.

    A codec without a level has the lake's level where it is the lake's codec, else the codec's default.

    Raises:
        SchemaMismatchError: a property says what there is not; names it.
    """
    codec = _codec(path, properties.get(CODEC), options.compression)
    text = properties.get(LEVEL)
    if codec not in _LEVELS:
        return Compression(codec, None)
    if text is not None:
        return Compression(codec, _level(path, text, codec))
    ours = codec == options.compression and options.compression_level > 0
    return Compression(codec, options.compression_level if ours else None)


def check_level(options: IcebergOptions) -> None:
    """Check that the lake's codec has the lake's level; one of 0 or less means the codec's default.

    Raises:
        ConfigError: it has not.
    """
    levels, level = _LEVELS.get(options.compression), options.compression_level
    if levels is not None and level > 0 and level not in levels:
        expected = f"a level of {options.compression} from {levels.start} to {levels.stop - 1}"
        raise ConfigError(key="lake.compression_level", expected=expected, found=level)


def _codec(path: TablePath, text: str | None, default: str) -> str:
    if text is None:
        return default
    codec = text.lower()
    if codec not in _CODECS:
        raise _refusal(path, CODEC, f"one of {', '.join(_CODECS)}", text)
    return _UNCOMPRESSED.get(codec, codec)


def _level(path: TablePath, text: str, codec: str) -> int:
    levels = _LEVELS[codec]
    try:
        level = int(text)
    except ValueError:
        level = -1
    if level not in levels:
        raise _refusal(path, LEVEL, f"a level of {codec} from {levels.start} to {levels.stop - 1}", text)
    return level


def _refusal(path: TablePath, key: str, expected: str, found: str) -> SchemaMismatchError:
    message = f"{path}: property {key} of the lake table: expected {expected}, found {found!r}; set or remove it"
    return SchemaMismatchError(message)
