"""Plugins are found by the metadata of real distributions on the path."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import ConfigError, MissingPluginError, PluginError
from lakeward.hooks import discovery
from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.discovery import installed, load
from lakeward.hooks.plugins import COMMAND_GROUP, LAKE_GROUP, LEASE_GROUP, SOURCE_GROUP, WRAPPER_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution on the path: its name, and its entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(distribution: str, entries: str, group: str = LEASE_GROUP, requires: Sequence[str] = ()) -> None:
        folder = tmp_path / f"{distribution.replace('-', '_')}-1.5.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n"
            + "".join(f"Requires-Dist: {one}\n" for one in requires),
            encoding="utf-8",
        )
        (folder / "entry_points.txt").write_text(f"[{group}]\n{entries}\n", encoding="utf-8")
        discovery.forget()

    yield put
    discovery.forget()


def test_an_installed_plugin_is_listed_without_being_imported(install: Install) -> None:
    install("some-leases", "spare = no_such_module:Backend")

    found = {plugin.name: plugin for plugin in installed(LEASE_GROUP)}

    assert found["spare"] == ("spare", "some-leases", "1.5", "no_such_module:Backend")


def test_only_the_configured_backend_is_imported(install: Install, tmp_path: Path) -> None:
    code = "from tests_of_lakeward_do_not_import_this import x"
    (tmp_path / "lease_that_must_not_be_imported.py").write_text(code, encoding="utf-8")
    install("some-leases", "bad = lease_that_must_not_be_imported:Backend\ngood = lakeward_testing.clock:FakeClock")

    load(LEASE_GROUP, "good")

    assert "lease_that_must_not_be_imported" not in sys.modules


def test_two_distributions_that_claim_a_name_are_both_named(install: Install) -> None:
    install("first-leases", "spare = a:B")
    install("second-leases", "spare = c:D")

    with pytest.raises(PluginError, match=r"first-leases 1\.5 and second-leases 1\.5"):
        LeaseBackend.load("spare")


def test_a_plugin_that_cannot_be_imported_is_named_with_its_distribution(install: Install) -> None:
    install("some-leases", "spare = no_such_module:Backend")

    with pytest.raises(PluginError, match=r"'spare' of some-leases 1\.5 .*no_such_module"):
        LeaseBackend.load("spare")


@pytest.mark.parametrize(
    ("group", "name", "package"),
    [
        (SOURCE_GROUP, "fluss", "lakeward-source-fluss"),
        (SOURCE_GROUP, "embedded", "lakeward-source-embedded"),
        (LAKE_GROUP, "iceberg", "lakeward-lake-iceberg"),
        (LEASE_GROUP, "fluss", "lakeward-lease-fluss"),
        (LEASE_GROUP, "ttl", "lakeward-lease-ttl"),
        (LEASE_GROUP, "noop", "lakeward-lease-noop"),
    ],
)
def test_a_missing_plugin_of_ours_says_which_package_to_install(
    monkeypatch: pytest.MonkeyPatch, group: str, name: str, package: str
) -> None:
    monkeypatch.setattr(discovery, "_scan", lambda _group: ())

    with pytest.raises(MissingPluginError, match=f"pip install {package}$") as caught:
        load(group, name)

    assert caught.value.found == name


@pytest.mark.parametrize(
    ("group", "name"), [(LEASE_GROUP, "vault"), (LAKE_GROUP, "hudi"), (SOURCE_GROUP, "kafka"), (WRAPPER_GROUP, "zzz")]
)
def test_no_package_is_invented_for_a_plugin_that_nobody_knows(group: str, name: str) -> None:
    with pytest.raises(MissingPluginError, match="install the package that offers it") as caught:
        load(group, name)

    assert "pip install" not in str(caught.value)


def test_a_misspelt_name_is_corrected() -> None:
    with pytest.raises(MissingPluginError, match="Did you mean 'metrics'"):
        load(WRAPPER_GROUP, "metrix")


def test_a_near_miss_of_a_published_name_says_which_package_offers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_scan", lambda _group: ())

    with pytest.raises(
        MissingPluginError, match=r"Did you mean 'fluss'\? Install it with: pip install lakeward-lease-fluss"
    ):
        load(LEASE_GROUP, "flus")


def test_the_restriction_leaves_only_named_plugins_and_the_core(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("some-leases", "one = a:B\ntwo = a:B\nmetrics = a:B", group=WRAPPER_GROUP)
    monkeypatch.setenv("LAKEWARD_PLUGINS", "one, embedded")

    names = [(plugin.name, plugin.distribution) for plugin in installed(WRAPPER_GROUP)]

    assert names == [("audit", "lakeward"), ("metrics", "lakeward"), ("one", "some-leases")]


def test_the_restriction_leaves_tools_of_this_project_but_not_its_backends(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("lakeward-lens", "lens = a:B", group=COMMAND_GROUP)
    install("lakeward-lease-spare", "spare = a:B")
    monkeypatch.setattr(discovery, "extra_distributions", lambda: {"lakeward-lens", "lakeward-lease-spare"})
    monkeypatch.setenv("LAKEWARD_PLUGINS", "audit")

    assert [plugin.name for plugin in installed(COMMAND_GROUP) if plugin.distribution == "lakeward-lens"] == ["lens"]
    assert installed(LEASE_GROUP) == []


@pytest.mark.parametrize(
    ("text", "unknown", "hint"), [("one, three", "three", ""), ("some-lease", "some-lease", "'some-leases'")]
)
def test_an_unknown_name_in_the_restriction_is_named_with_those_that_are_known(
    install: Install, monkeypatch: pytest.MonkeyPatch, text: str, unknown: str, hint: str
) -> None:
    install("some-leases", "one = a:B\ntwo = a:B")
    monkeypatch.setenv("LAKEWARD_PLUGINS", text)

    with pytest.raises(ConfigError, match=rf"LAKEWARD_PLUGINS: expected .*one, .*some-leases.*'{unknown}'") as caught:
        installed(LEASE_GROUP)

    assert hint in caught.value.hint


@pytest.mark.parametrize("text", [",", " , ,", ",,"])
def test_a_restriction_of_commas_alone_is_an_error_that_says_what_is_expected(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("LAKEWARD_PLUGINS", text)

    with pytest.raises(ConfigError, match=r"LAKEWARD_PLUGINS: expected names .* separated by commas, found '[ ,]+'"):
        installed(LEASE_GROUP)


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_restriction_is_none(install: Install, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    install("some-leases", "one = a:B")
    monkeypatch.setenv("LAKEWARD_PLUGINS", text)

    assert "one" in [plugin.name for plugin in installed(LEASE_GROUP)]


def test_the_restriction_takes_a_distributions_name_for_all_that_it_offers(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("some-leases", "one = a:B\ntwo = a:B")
    install("other-leases", "three = a:B")
    monkeypatch.setenv("LAKEWARD_PLUGINS", "some-leases")

    assert [plugin.name for plugin in installed(LEASE_GROUP)] == ["one", "two"]


@pytest.mark.parametrize(
    "needed", ["lakeward>=7,<8", "Lakeward==0.0.1", 'lakeward>=7; python_version >= "3"', "lakeward[java]>=7"]
)
def test_a_plugin_for_another_core_says_so_and_is_not_imported(install: Install, tmp_path: Path, needed: str) -> None:
    (tmp_path / "lease_for_another_core.py").write_text("raise RuntimeError", encoding="utf-8")
    install("some-leases", "spare = lease_for_another_core:Backend", requires=(needed, "pyarrow>=20"))

    with pytest.raises(
        PluginError,
        match=r"lease backend 'spare' of some-leases 1\.5 is built for lakeward.*, found lakeward .*install a",
    ):
        LeaseBackend.load("spare")

    assert "lease_for_another_core" not in sys.modules


@pytest.mark.parametrize(
    "needed", ["lakeward", "lakeward>=0.1", 'lakeward>=7; extra == "new"', 'lakeward>=7; python_version < "3"']
)
def test_a_plugin_for_this_core_is_loaded(install: Install, needed: str) -> None:
    install("some-leases", "spare = lakeward_testing.clock:FakeClock", requires=(needed,))

    load(LEASE_GROUP, "spare")


def test_a_dependency_that_cannot_be_read_names_the_distribution(install: Install) -> None:
    install("some-leases", "spare = lakeward_testing.clock:FakeClock", requires=("lakeward >>> 1",))

    with pytest.raises(PluginError, match=r"some-leases 1\.5: its metadata names a dependency 'lakeward >>> 1'"):
        load(LEASE_GROUP, "spare")


def test_what_the_restriction_leaves_out_says_so(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("some-leases", "spare = a:B")
    monkeypatch.setenv("LAKEWARD_PLUGINS", "embedded")

    with pytest.raises(MissingPluginError, match="LAKEWARD_PLUGINS=embedded leaves it out"):
        load(LEASE_GROUP, "spare")


def test_a_copy_of_the_same_distribution_is_no_second_claim(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("some-leases", "spare = lakeward_testing.clock:FakeClock")
    folder = tmp_path / "copy" / "some_leases-1.4.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: some-leases\nVersion: 1.4\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(f"[{LEASE_GROUP}]\nspare = old:Old\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "copy")])
    discovery.forget()

    assert [plugin.version for plugin in installed(LEASE_GROUP) if plugin.name == "spare"] == ["1.5"]
