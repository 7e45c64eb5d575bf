"""Fixtures for tests of commands: the command line in this process, a lake without rows and a lease backend for it."""

from __future__ import annotations

import json
import logging
import os
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pytest
import structlog

from lakeward.cli.main import run
from lakeward.hooks import discovery

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LAKE = '''
from __future__ import annotations

import pickle
from pathlib import Path
from typing import Annotated

from lakeward.errors import SchemaMismatchError
from lakeward.model.options import LocalPath, Meta, Options


class PuddleOptions(Options, frozen=True, kw_only=True):
    warehouse: Annotated[LocalPath, Meta(description="Where files lie.")] = "warehouse"


class Puddle:
    """A lake with nothing in it but the head, or the error, that a test left in a file.

    Which tables it was asked for is in `asked`. It can hold no column called `wave`.
    """

    name = "puddle"

    def check_schema(self, table):
        if "wave" in table.schema.names:
            raise SchemaMismatchError(f"{table.path}: column 'wave': expected another name, found this one")

    def head(self, path):
        file = Path("head.pickle")
        if not file.exists():
            return None
        with Path("asked").open("a", encoding="utf-8") as asked:
            asked.write(f"{path}\\n")
        found = pickle.loads(file.read_bytes())
        if isinstance(found, Exception):
            raise found
        return found

    def close(self):
        pass


class PuddlePlugin:
    options = PuddleOptions

    def open(self, options, clock):
        return Puddle()

    def partitioner(self, task, table):
        raise NotImplementedError("it has no rows")

    def partition_writer(self, *args):
        raise NotImplementedError("it has no rows")
'''
_LEASES = '''
from __future__ import annotations

from typing import Annotated

from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import FailoverAction, FailoverAnswer
from lakeward.model.options import Meta, Options


class MineOptions(Options, frozen=True, kw_only=True):
    required: Annotated[bool, Meta(description="Fail where the source has no leases.")] = True


class MineLeases:
    """Passes everything on to the source."""

    conformance_level = "chaos"
    default_duration_s = 600.0
    options = MineOptions

    def __init__(self, options):
        pass

    def open(self):
        pass

    def close(self):
        pass

    @hookimpl
    def acquire(self, lease, snapshots):
        return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)

    @hookimpl
    def release(self, lease, buckets):
        lease.server.release(lease.lease_id, buckets)

    @hookimpl
    def drop(self, lease):
        lease.server.drop(lease.lease_id)

    @hookimpl
    def on_failover(self, lease, failover):
        return FailoverAnswer(FailoverAction.KEEP)

    @hookimpl
    def serialize_state(self, lease):
        return None
'''
_CONFIG = """
[service]
name = "nyc"
[source]
type = "embedded"
path = "{store}"
[lake]
type = "puddle"
[lease]
backend = "mine"
"""


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:  # noqa: ANN401 - any JSON
        """What was printed, read as JSON."""
        return json.loads(self.out)


class Lakeward(Protocol):
    """Run `lakeward` with these arguments."""

    def __call__(self, *arguments: str) -> Said:
        """Run it in this process with the words after `lakeward`; return its exit code and what it printed."""
        ...


@pytest.fixture
def lakeward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Lakeward]:
    """Give a command line whose current directory is empty; the process gets its logging back."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LAKEWARD_")]:
        monkeypatch.delenv(name)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def run_line(*arguments: str) -> Said:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    yield run_line
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def configured(lakeward: Lakeward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lakeward]:
    """Install a lake and a lease backend, and write a configuration that names them."""
    site = tmp_path / "site"
    points = "[lakeward.lake]\npuddle = puddle_lake:PuddlePlugin\n"
    points += "[lakeward.lease]\nmine = mine_leases:MineLeases\n"
    files = {"puddle_lake.py": _LAKE, "mine_leases.py": _LEASES, "puddle-1.2.dist-info/entry_points.txt": points}
    files["puddle-1.2.dist-info/METADATA"] = "Metadata-Version: 2.1\nName: puddle\nVersion: 1.2\n"
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(site))
    discovery.forget()
    text = textwrap.dedent(_CONFIG).format(store=tmp_path / "store")
    (tmp_path / "lakeward.toml").write_text(text, encoding="utf-8")
    yield lakeward
    discovery.forget()


@pytest.fixture
def flights(configured: Lakeward, tmp_path: Path) -> Lakeward:
    """Create a primary-key table `nyc.flights` with three rows in a file and in the table."""
    columns = "id bigint not null, name string"
    assert configured("embedded", "create", "nyc.flights", "--columns", columns, "--primary-key", "id").code == 0
    (tmp_path / "flights.csv").write_text("id,name\n1,a\n2,b\n3,c\n", encoding="utf-8")
    assert configured("embedded", "load", "nyc.flights", "flights.csv").code == 0
    return configured
