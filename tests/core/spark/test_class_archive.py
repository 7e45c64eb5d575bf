"""An archive of classes is written by one start and used by the next; half a file is never used."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from lakeward.errors import StorageError
from lakeward.spark.class_archive import archive_options
from lakeward.spark.java import find_java

HEADER = 0xF00BABA8.to_bytes(4, sys.byteorder)
SPARK = Path(pyspark.__file__).parent


def run_java(options: str) -> str:
    """Run a program of Spark's that loads a few hundred classes; returns what Java says of itself."""
    java = str(find_java().path / "bin" / "java")
    main = "org.apache.spark.deploy.SparkSubmit"
    program = ["-cp", f"{SPARK}/jars/*", "org.apache.spark.launcher.Main", main, "--version"]
    done = subprocess.run(
        [java, *shlex.split(options), *program],
        env=os.environ | {"SPARK_HOME": str(SPARK), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return done.stderr


def part_of(directory: Path, content: bytes) -> Path:
    """Leave the file that a Java began to write."""
    options = archive_options(directory, find_java())
    part = Path(shlex.split(options)[0].removeprefix("-XX:ArchiveClassesAtExit="))
    part.write_bytes(content)
    return part


@pytest.mark.spark
def test_what_one_java_wrote_at_its_end_is_used_by_the_next(tmp_path: Path) -> None:
    java = find_java()
    first = archive_options(tmp_path / "a b", java)
    assert "-XX:ArchiveClassesAtExit=" in first
    assert run_java(first) == ""
    second = archive_options(tmp_path / "a b", java)
    [archive] = (tmp_path / "a b").iterdir()
    assert f"-XX:SharedArchiveFile={archive}" in second
    assert run_java(f"{second} -Xshare:on") == ""


def test_half_an_archive_is_not_used_and_left_to_the_java_that_writes_it(tmp_path: Path) -> None:
    part = part_of(tmp_path, bytes(4096))
    assert "ArchiveClassesAtExit" in archive_options(tmp_path, find_java())
    assert part.exists()


def test_a_whole_archive_is_used(tmp_path: Path) -> None:
    part = part_of(tmp_path, HEADER + bytes(4096))
    assert "SharedArchiveFile" in archive_options(tmp_path, find_java())
    assert not part.exists()


def test_a_directory_that_is_a_file_is_an_error_that_names_the_key(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StorageError, match=r"spark\.class_archive: expected a directory that can be written"):
        archive_options(file, find_java())
