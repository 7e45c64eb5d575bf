"""What `lakeward plugins new` refuses, and what it tells its caller to type."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from lakeward.hooks import discovery
from lakeward.observe.lease_calls import LeaseMetrics

Lakeward = Callable[..., Any]
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution on the path: its name, and its entry points of a group."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))

    def put(distribution: str, group: str, entries: str) -> None:
        folder = site / f"{distribution.replace('-', '_')}-1.5.dist-info"
        folder.mkdir(parents=True)
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n"
        (folder / "METADATA").write_text(metadata, encoding="utf-8")
        (folder / "entry_points.txt").write_text(f"[{group}]\n{entries}\n", encoding="utf-8")
        discovery.forget()

    yield put
    discovery.forget()


@pytest.mark.parametrize(
    ("kind", "name", "holder"),
    [
        ("wrapper", "metrics", "lease wrapper 'metrics' of lakeward"),
        ("wrapper", "audit", "lease wrapper 'audit' of lakeward"),
        ("lease", "ttl", "lease backend 'ttl' of lakeward-lease-ttl"),
        ("lake", "iceberg", "lake 'iceberg' of lakeward-lake-iceberg"),
        ("source", "embedded", "source 'embedded' of lakeward-source-embedded"),
        ("source", "fluss", "source 'fluss' of lakeward-source-fluss"),
        ("log-source", "fluss", "source 'fluss' of lakeward-source-fluss"),
    ],
)
def test_the_name_of_a_plugin_of_ours_is_taken_whether_it_is_installed_or_not(
    lakeward: Lakeward, tmp_path: Path, kind: str, name: str, holder: str
) -> None:
    said = lakeward("plugins", "new", "--kind", kind, name)

    assert (said.code, list(tmp_path.iterdir())) == (2, [])
    assert f"error[LW-100]: name: {name!r} is taken by the {holder}" in said.err
    assert f"such as 'my-{name}'" in said.err


def test_the_name_that_is_proposed_can_be_had(lakeward: Lakeward, install: Install) -> None:
    install("some-leases", "lakeward.lease", "spare = a:B\nmy-spare = a:B\nmy2-spare = a:B")
    said = lakeward("plugins", "new", "spare")
    assert said.code == 2
    assert "taken by the lease backend 'spare' of some-leases" in said.err
    proposed = re.search(r"such as '([^']+)'", said.err)
    assert proposed is not None
    assert proposed[1] == "my3-spare"
    assert lakeward("plugins", "new", proposed[1]).code == 0


def test_a_name_that_is_installed_is_taken_where_a_variable_hides_it(
    lakeward: Lakeward, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("some-leases", "lakeward.lease", "spare = a:B")
    monkeypatch.setenv("LAKEWARD_PLUGINS", "embedded")
    assert "taken by the lease backend 'spare' of some-leases" in lakeward("plugins", "new", "spare").err


def test_a_name_is_taken_too_where_only_its_package_has_the_name_of_another_one(
    lakeward: Lakeward, install: Install
) -> None:
    install("Lakeward_Lease_Vault", "lakeward.lease", "safe = a:B")
    said = lakeward("plugins", "new", "vault")
    assert said.code == 2
    assert "taken by the lease backend 'safe' of Lakeward_Lease_Vault" in said.err


def test_a_name_of_another_kind_of_plugin_is_free(lakeward: Lakeward) -> None:
    assert lakeward("plugins", "new", "--kind", "lease", "iceberg").code == 0


@pytest.mark.parametrize("kind", ["lease", "wrapper", "lake", "source"])
def test_a_name_has_40_characters_at_most(lakeward: Lakeward, tmp_path: Path, kind: str) -> None:
    assert lakeward("plugins", "new", "--kind", kind, "n" * 40).code == 0
    before = list(tmp_path.iterdir())
    for length in (41, 300, 5000):
        said = lakeward("plugins", "new", "--kind", kind, "n" * length)
        assert said.code == 2
        assert "error[LW-100]: name: expected at most 40 " in said.err
        assert f"({length} characters)" in said.err
        assert len(said.err) < 300
    assert list(tmp_path.iterdir()) == before


def test_a_proposed_name_has_40_characters_at_most_as_well(lakeward: Lakeward, install: Install) -> None:
    name = "n" * 36 + "-abc"
    install("some-leases", "lakeward.lease", f"{name} = a:B")
    assert f"such as 'my-{'n' * 36}'" in lakeward("plugins", "new", name).err


def test_a_directory_that_cannot_be_looked_at_is_named(lakeward: Lakeward) -> None:
    said = lakeward("plugins", "new", "mine", "d" * 300)
    assert said.code == 1
    assert "internal error" not in said.err
    assert re.search(r"d{300}: cannot be read \(File name too long\)", said.err)


@pytest.mark.parametrize("name", ["my dir", "it's here", "$HOME", "a;b"])
def test_the_line_to_try_it_is_one_that_a_shell_reads_as_meant(lakeward: Lakeward, tmp_path: Path, name: str) -> None:
    said = lakeward("plugins", "new", "mine", name)
    assert (tmp_path / name / "pyproject.toml").is_file()
    _, _, line = said.out.partition("Try it: ")
    words = shlex.split(line.splitlines()[0], comments=False)
    assert words == ["pip", "install", "-e", name, "lakeward-testing", "&&", "pytest", name]


def test_a_new_wrapper_counts_under_a_name_that_no_metric_of_ours_has(
    lakeward: Lakeward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `lakeward_lease_calls_total` is one of the wrapper `metrics`.
    assert lakeward("plugins", "new", "--kind", "wrapper", "calls", "plugin").code == 0
    monkeypatch.syspath_prepend(str(tmp_path / "plugin" / "src"))
    wrapper = importlib.import_module("lakeward_wrapper_calls.plugin").CallsWrapper()
    registry = CollectorRegistry()
    LeaseMetrics().register_metrics(registry)

    wrapper.register_metrics(registry)

    assert "lakeward_wrapper_calls" in {family.name for family in registry.collect()}
