"""Jars come out of a cache that nobody else can write to: they are started as this user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward_demo.fluss.jars import Jar, JarsMissingError, find_jars

if TYPE_CHECKING:
    from pathlib import Path

JAR = Jar("org.example", "tool", "1.0")
NO_JAVA = "no-such-java"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache that holds the jar."""
    place = tmp_path / "jars"
    place.mkdir(mode=0o755)
    (place / JAR.file).write_bytes(b"jar")
    return place


def test_a_jar_of_our_own_cache_is_used(cache: Path, tmp_path: Path) -> None:
    assert find_jars((JAR,), tmp_path / NO_JAVA, cache) == (cache / JAR.file,)


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_cache_that_others_may_write_to_is_refused(cache: Path, tmp_path: Path, mode: int) -> None:
    cache.chmod(mode)
    with pytest.raises(JarsMissingError, match="that nobody else may write to, found owner"):
        find_jars((JAR,), tmp_path / NO_JAVA, cache)


def test_a_cache_that_is_a_link_to_elsewhere_is_refused(cache: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(cache)
    with pytest.raises(JarsMissingError, match="that nobody else may write to, found owner"):
        find_jars((JAR,), tmp_path / NO_JAVA, link)
