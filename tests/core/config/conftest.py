"""A source and a lake of an installed distribution, and a configuration file that names them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from lakeward.config.loaded import Loaded
from lakeward.config.loader import load_config
from lakeward.hooks import discovery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_MODULE = """
from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from lakeward.model.options import LocalPath, Meta, Options, Secret


class PondOptions(Options, frozen=True, kw_only=True):
    path: Annotated[LocalPath, Meta(description="Where the pond lies.")]
    cache: LocalPath = "cache"
    depth_m: Annotated[float, Meta(gt=0)] = 2.0
    password: Secret = ""
    names: tuple[str, ...] = ()
    properties: Mapping[str, str] = {}
    extra: Mapping[str, Any] = {}


def is_file(given):
    return given.get("kind") != "rest"


class MarshOptions(Options, frozen=True, kw_only=True):
    kind: Literal["file", "rest"] = "file"
    warehouse: Annotated[str, Meta(extra={"path": is_file})] = ""
    commit_timeout_s: float = 1.0


class PondPlugin:
    options = PondOptions


class MarshPlugin:
    options = MarshOptions


class RiverPlugin(MarshPlugin):
    def partitioner(self, task, table): ...

    def partition_writer(self, task, table, partition, name, attempt, before, memory_bytes): ...

    def row_check(self, task, table, split): ...


class PierOptions(Options, frozen=True, kw_only=True):
    required: bool = False


class PierLeases:
    options = PierOptions


class RaftLeases:
    pass
"""
_MINIMAL = """
[source]
type = "pond"
path = "water"
[lake]
type = "marsh"
"""


@pytest.fixture
def pond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a source `pond`, the lakes `marsh` and `river`, which can partition, and two lease backends.

    `pier` has options, `raft` has none.
    """
    site = tmp_path / "site"
    info = site / "pond_of_tests-1.2.dist-info"
    info.mkdir(parents=True)
    (site / "pond_of_tests.py").write_text(_MODULE, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pond-of-tests\nVersion: 1.2\n", encoding="utf-8")
    points = "[lakeward.source]\npond = pond_of_tests:PondPlugin\n[lakeward.lake]\nmarsh = pond_of_tests:MarshPlugin\n"
    points += "river = pond_of_tests:RiverPlugin\n"
    points += "[lakeward.lease]\npier = pond_of_tests:PierLeases\nraft = pond_of_tests:RaftLeases\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.syspath_prepend(str(site))
    discovery.forget()
    yield
    discovery.forget()


@pytest.fixture
def load(pond: None, tmp_path: Path) -> Callable[..., Loaded]:
    """Load a configuration made of the least that is needed and some more TOML."""

    def loader(
        more: str = "", environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
    ) -> Loaded:
        file = tmp_path / "lakeward.toml"
        file.write_text(_MINIMAL + textwrap.dedent(more), encoding="utf-8")
        return load_config(file, environ or {}, flags)

    return loader
