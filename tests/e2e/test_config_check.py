"""What `config check` says of the keys of a lake that is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_service_kit.command_line import Lakeward


@pytest.mark.parametrize(
    ("setting", "near", "known"),
    [
        ("compression=zst", "zstd", "'zstd', 'snappy', 'lz4', 'gzip', 'brotli', 'none'"),
        ("compression=ZSTD", "zstd", "'zstd', 'snappy'"),
        ("catalog=slq", "sql", "rest, hive, glue, dynamodb, sql"),
    ],
)
def test_check_refuses_a_value_that_the_lake_does_not_know_and_names_those_that_it_does(
    flights: Lakeward, tmp_path: Path, setting: str, near: str, known: str
) -> None:
    lake = ("--set", "lake.type=iceberg", "--set", f"lake.warehouse={tmp_path / 'warehouse'}")
    said = flights("config", "check", *lake, "--set", f"lake.{setting}")
    assert said.code in {1, 2}
    told = said.out + said.err
    assert f"Did you mean {near!r}?" in told
    assert known in told
    assert repr(setting.partition("=")[2]) in told


def test_check_refuses_a_level_that_the_lakes_codec_does_not_have(flights: Lakeward, tmp_path: Path) -> None:
    lake = ("--set", "lake.type=iceberg", "--set", f"lake.warehouse={tmp_path / 'warehouse'}")
    said = flights("config", "check", *lake, "--set", "lake.compression=gzip", "--set", "lake.compression_level=22")
    assert said.code == 1
    assert "lake.compression_level: expected a level of gzip from 1 to 9, found 22" in said.out
