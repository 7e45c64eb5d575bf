from __future__ import annotations

import importlib
import os
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.config.keys import keys_of
from lakeward.config.loader import load_config
from lakeward.hooks import discovery
from lakeward.model.tables import TablePath
from lakeward_source_embedded.store import EmbeddedStore

pytestmark = pytest.mark.slow

Lakeward = Callable[..., Any]
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution with a lease backend on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(distribution: str, entries: str, requires: Sequence[str]) -> None:
        folder = tmp_path / f"{distribution.replace('-', '_')}-1.5.dist-info"
        folder.mkdir()
        needed = "".join(f"Requires-Dist: {one}\n" for one in requires)
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n{needed}"
        (folder / "METADATA").write_text(metadata, encoding="utf-8")
        (folder / "entry_points.txt").write_text(f"[lakeward.lease]\n{entries}\n", encoding="utf-8")
        discovery.forget()

    yield put
    discovery.forget()


def test_show_says_where_each_value_came_from(flights: Lakeward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEWARD_SERVICE__POLL_S", "2")
    said = flights("config", "show", "-o", "json", "--set", "spark.slots=3")
    found = {key["key"]: (key["value"], key["origin"]) for key in said.document["keys"]}
    assert found["service.name"] == ("nyc", "file lakeward.toml")
    assert found["service.poll_s"] == (2.0, "environment LAKEWARD_SERVICE__POLL_S")
    assert found["spark.slots"] == (3, "flag --set spark.slots")
    assert found["lake.warehouse"][1] == "default"


def test_show_as_text_has_a_line_for_each_key(flights: Lakeward) -> None:
    lines = flights("config", "show").out.splitlines()
    assert lines[0].split() == ["key", "value", "from"]
    assert any(line.split() == ["service.name", "nyc", "file", "lakeward.toml"] for line in lines)


def test_init_writes_a_file_that_loads(configured: Lakeward, tmp_path: Path) -> None:
    assert configured("config", "init", "new.toml", "--name", "mine").code == 0
    loaded = load_config(tmp_path / "new.toml", {}, {"lake.type": "puddle"})
    assert loaded.settings.service.name == "mine"


def test_a_fresh_configuration_says_how_to_make_the_store(configured: Lakeward) -> None:
    said = configured("config", "check", "-o", "json")
    (source,) = (check for check in said.document["checks"] if check["what"] == "source")
    assert not source["ok"]
    assert "Make one with `lakeward embedded create" in source["message"]


@pytest.mark.parametrize("command", [("doctor", "--no-spark"), ("config", "check")])
@pytest.mark.parametrize(("master", "said"), [("local[2]", "on: "), ("local-cluster[2,1,1024]", "off: whoever")])
def test_it_is_said_whether_spark_asks_who_speaks_to_it(
    flights: Lakeward, command: tuple[str, ...], master: str, said: str
) -> None:
    checks = flights(*command, "-o", "json", "--set", f"spark.master={master}").document["checks"]
    (found,) = (check for check in checks if check["what"] == "spark authentication")
    assert found["ok"]
    assert found["message"].startswith(said)
    assert bool(found["action"]) == (said != "on: ")


@pytest.mark.parametrize("command", [("doctor", "--no-spark"), ("config", "check")])
@pytest.mark.parametrize(("mode", "said"), [(0o700, None), (0o755, "watch"), (0o775, "steer"), (0o707, "steer")])
def test_it_is_said_where_other_users_reach_the_state(
    flights: Lakeward, tmp_path: Path, command: tuple[str, ...], mode: int, said: str | None
) -> None:
    root = tmp_path / "state"
    folder = root / "demo"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    words = ("-o", "json", "--set", f"checkpoint.root={root}", "--set", "service.name=demo")
    checks = flights(*command, *words).document["checks"]
    found = [check for check in checks if check["what"] == "state permissions"]
    assert [f"can {said} the service" in check["message"] for check in found] == [True] * (said is not None)
    assert [check["ok"] for check in found] == [said == "watch"] * (said is not None)


def test_init_never_overwrites(flights: Lakeward, tmp_path: Path) -> None:
    before = (tmp_path / "lakeward.toml").read_bytes()
    said = flights("config", "init")
    assert said.code == 2
    assert "is there already" in said.err
    assert (tmp_path / "lakeward.toml").read_bytes() == before


def test_plugins_say_what_is_used(configured: Lakeward) -> None:
    plugins = configured("plugins", "-o", "json").document["plugins"]
    lines = {(line["kind"], line["name"]): (line["distribution"], line["version"], line["used"]) for line in plugins}
    assert lines["lake", "puddle"] == ("puddle", "1.2", True)
    assert lines["lease backend", "mine"] == ("puddle", "1.2", True)


def test_plugins_say_which_hooks_they_have_and_which_level_they_publish(configured: Lakeward) -> None:
    plugins = configured("plugins", "-o", "json").document["plugins"]
    lines = {(line["kind"], line["name"]): (line["hooks"], line["level"], line["problem"]) for line in plugins}
    five = ["acquire", "drop", "on_failover", "release", "serialize_state"]
    assert lines["lease wrapper", "audit"] == (five, "chaos", "")
    assert lines["source", "embedded"] == (["open", "reader"], "chaos", "")
    assert lines["lake", "puddle"] == (["open", "partitioner", "partition_writer"], "", "")


def test_a_plugin_that_cannot_be_loaded_is_listed_with_the_reason(lakeward: Lakeward, install: Install) -> None:
    install("some-leases", "spare = no_such_module:Backend", requires=["lakeward>=7"])
    said = lakeward("plugins")
    assert said.code == 0
    assert re.search(r"spare +some-leases +1\.5 .* cannot be loaded", said.out)
    assert "lease backend spare: lease backend 'spare' of some-leases 1.5 is built for lakeward>=7" in said.out


def test_a_name_that_two_packages_claim_is_two_lines_and_one_problem(lakeward: Lakeward, install: Install) -> None:
    install("first-leases", "spare = a:B", requires=[])
    install("second-leases", "spare = c:D", requires=[])
    said = lakeward("plugins")
    assert re.findall(r"spare +(\S+) +1\.5 .* cannot be loaded", said.out) == ["first-leases", "second-leases"]
    assert said.out.count("is claimed by first-leases 1.5 and second-leases 1.5; uninstall all but one") == 1


def test_a_restriction_that_names_no_plugin_is_an_error_before_anything_is_hidden(
    lakeward: Lakeward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEWARD_PLUGINS", ",")
    said = lakeward("plugins")
    assert (said.code, said.out) == (2, "")
    assert "LAKEWARD_PLUGINS: expected names of plugins or distributions, separated by commas, found ','" in said.err


def test_plugins_are_shown_without_a_configuration(lakeward: Lakeward) -> None:
    said = lakeward("plugins")
    assert said.code == 0
    assert "embedded" in said.out
    assert "Unknown which are used: lakeward.toml" in said.out


@pytest.mark.parametrize("kind", ["lease", "wrapper", "lake", "source"])
def test_a_new_plugin_passes_the_conformance_suite(lakeward: Lakeward, tmp_path: Path, kind: str) -> None:
    assert lakeward("plugins", "new", "--kind", kind, "my-own", "plugin").code == 0
    place = tmp_path / "plugin"
    environment = {**os.environ, "PYTHONPATH": str(place / "src")}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(place), str(place)]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", env=environment, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d\d passed", done.stdout), done.stdout


@pytest.mark.parametrize("kind", ["lease", "wrapper", "lake", "source"])
def test_a_new_plugin_is_a_whole_project_in_a_directory_of_its_name(
    lakeward: Lakeward, tmp_path: Path, kind: str
) -> None:
    said = lakeward("plugins", "new", "--kind", kind, "my-own", "-o", "json")
    place = tmp_path / f"lakeward-{kind}-my-own"
    assert said.document["directory"] == place.name
    files = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert {"pyproject.toml", "README.md", "tox.ini", ".github/workflows/ci.yml"} <= files
    assert f"tests/test_{kind}_my_own.py" in files
    assert "${{ matrix.python }}" in (place / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    published = tomllib.loads((place / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ((group, names),) = published["entry-points"].items()
    assert group == ("lakeward.lease_wrapper" if kind == "wrapper" else f"lakeward.{kind}")
    assert list(names) == ["my-own"]


def test_a_kind_of_plugin_that_there_is_not_is_refused(lakeward: Lakeward) -> None:
    said = lakeward("plugins", "new", "--kind", "sink", "my-own", "plugin")
    assert said.code == 2
    assert "'lease', 'wrapper', 'lake', 'source'" in said.err


@pytest.mark.parametrize("kind", ["lake", "source"])
def test_a_new_plugin_is_published_with_options_that_are_described(
    lakeward: Lakeward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    assert lakeward("plugins", "new", "--kind", kind, f"described-{kind}", "plugin").code == 0
    published = tomllib.loads((tmp_path / "plugin" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, attribute = published["entry-points"][f"lakeward.{kind}"][f"described-{kind}"].partition(":")
    monkeypatch.syspath_prepend(str(tmp_path / "plugin" / "src"))
    keys = keys_of(getattr(importlib.import_module(module), attribute).options)
    assert "path" in keys
    assert all(key.description for key in keys.values())


def test_a_new_backend_has_a_key_of_its_own(configured: Lakeward, tmp_path: Path) -> None:
    file = tmp_path / "lakeward.toml"
    text = file.read_text(encoding="utf-8")
    assert 'backend = "mine"' in text
    file.write_text(text.replace('backend = "mine"', 'backend = "mine"\nrequired = false'), encoding="utf-8")
    shown = configured("config", "show", "-o", "json")
    assert shown.code == 0, shown.err
    assert "lease.required" in shown.out


@pytest.mark.parametrize(("name", "text"), [("My", "lower-case"), ("a_b", "lower-case"), ("-a", "No such option")])
def test_a_wrong_name_of_a_backend_is_refused(lakeward: Lakeward, name: str, text: str) -> None:
    said = lakeward("plugins", "new", name, "backend")
    assert said.code == 2
    assert text in said.err


def test_a_new_backend_is_not_written_over_something(lakeward: Lakeward, tmp_path: Path) -> None:
    (tmp_path / "backend").mkdir()
    (tmp_path / "backend" / "mine.py").write_text("", encoding="utf-8")
    assert "expected a new or empty directory" in lakeward("plugins", "new", "x", "backend").err


def checks(lakeward: Lakeward, *words: str) -> dict[str, tuple[bool, str]]:
    document = lakeward("doctor", "--no-spark", "-o", "json", *words).document
    return {check["what"]: (check["ok"], check["message"]) for check in document["checks"]}


def test_the_doctor_looks_at_everything_that_is_configured(flights: Lakeward) -> None:
    found = checks(flights)
    assert {"python", "java", "pyspark", "configuration", "lease backend", "state directory", "port"} <= set(found)
    assert found["lake.warehouse"][0]


def test_the_doctor_says_what_the_source_can_do(flights: Lakeward) -> None:
    found = checks(flights)
    assert found["source"][0]
    assert "1 table, 1 of them lake-enabled" in found["source tables"][1]
    assert {"source leases", "source tiering"} <= set(found)


def test_the_doctor_finds_a_source_that_cannot_be_opened(flights: Lakeward, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    said = flights("doctor", "--no-spark", "-o", "json", "--set", "source.path=other")
    source = next(check for check in said.document["checks"] if check["what"] == "source")
    assert said.code == 1
    assert not source["ok"]
    assert "other" in source["message"]


def test_the_doctor_works_without_a_configuration(lakeward: Lakeward) -> None:
    said = lakeward("doctor")
    assert said.code == 1
    assert "problem" in said.out
    assert "config init" in said.out


def test_the_doctor_finds_a_port_in_use(flights: Lakeward) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ok, message = checks(flights, "--set", f"service.port={port}", "--set", "service.host=127.0.0.1")["port"]
    assert not ok
    assert str(port) in message


@pytest.mark.parametrize("command", ["config check", "doctor --no-spark"])
def test_a_host_that_cannot_be_resolved_is_found(flights: Lakeward, command: str) -> None:
    said = flights(*command.split(), "-o", "json", "--set", "service.host=no-such-host.invalid")
    messages = [check["message"] for check in said.document["checks"] if not check["ok"]]
    assert said.code == 1
    assert len(messages) == 1
    assert "service.host: expected a host name or address" in messages[0]


def test_the_service_does_not_start_where_its_host_cannot_be_resolved(flights: Lakeward) -> None:
    said = flights("run", "--once", "--set", "service.host=no-such-host.invalid")
    assert said.code == 2
    assert "service.host: expected a host name or address" in said.err


def test_the_doctor_finds_a_file_where_a_directory_should_be(flights: Lakeward) -> None:
    ok, message = checks(flights, "--set", "lake.warehouse=flights.csv")["lake.warehouse"]
    assert not ok
    assert "is a file" in message


def in_store(s3: Any, bucket: str) -> list[str]:  # noqa: ANN401 - the fixture's server
    """Return flags that keep state in a bucket, with a password."""
    options = {f"storage.{name}": value for name, value in {**s3.options, "secret_key": "hush"}.items()}
    flags = {"root": f"s3://{bucket}/state"} | options
    return [word for name, value in flags.items() for word in ("--set", f"checkpoint.{name}={value}")]


@pytest.mark.parametrize(
    ("command", "what"), [(("doctor", "--no-spark"), "state directory"), (("config", "check"), "state")]
)
def test_a_state_root_in_a_store_is_looked_at_without_showing_the_password(
    flights: Lakeward,
    s3: Any,  # noqa: ANN401 - as above
    command: tuple[str, ...],
    what: str,
) -> None:
    said = flights(*command, "-o", "json", *in_store(s3, s3.new_bucket()))
    (found,) = [check for check in said.document["checks"] if check["what"] == what]
    assert found["ok"]
    assert "can be listed" in found["message"]
    assert "hush" not in said.out + said.err


@pytest.mark.parametrize(
    ("command", "what"), [(("doctor", "--no-spark"), "state directory"), (("config", "check"), "state")]
)
def test_a_bucket_that_is_missing_fails_the_check_with_a_code(
    flights: Lakeward,
    s3: Any,  # noqa: ANN401 - as above
    command: tuple[str, ...],
    what: str,
) -> None:
    said = flights(*command, "-o", "json", *in_store(s3, "nowhere"))
    (found,) = [check for check in said.document["checks"] if check["what"] == what]
    assert said.code == 1
    assert not found["ok"]
    assert "[LW-302] nowhere/state: there is no such bucket" in found["message"]


def test_show_masks_how_a_store_is_reached(flights: Lakeward, s3: Any) -> None:  # noqa: ANN401 - as above
    said = flights("config", "show", *in_store(s3, "bucket"))
    assert "checkpoint.storage.secret_key" in said.out
    assert "hush" not in said.out


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"root": "s3://b/x", "storage.secret_kay": "hush"}, "Did you mean 'secret_key'?"),
        ({"root": "s3://b/x", "storage.scheme": "htp"}, "one of https, http, found 'htp'. Did you mean 'http'?"),
        ({"root": "state", "storage.region": "x"}, "expected an address s3://BUCKET/PATH"),
        ({"root": "s3://me:hush@b/x", "storage.region": "x"}, "expected s3://BUCKET/PATH alone"),
    ],
)
def test_a_store_that_is_described_wrongly_is_refused(flights: Lakeward, flags: dict[str, str], text: str) -> None:
    words = [word for name, value in flags.items() for word in ("--set", f"checkpoint.{name}={value}")]
    said = flights("config", "show", *words)
    assert said.code == 2
    assert text in said.err
    assert "hush" not in said.out + said.err


def test_the_doctor_names_a_backend_that_is_not_installed(flights: Lakeward) -> None:
    ok, message = checks(flights, "--set", "lease.backend=nowhere")["lease backend"]
    assert not ok
    assert "nowhere" in message


def test_check_builds_what_is_configured(flights: Lakeward) -> None:
    document = flights("config", "check", "-o", "json").document
    found = {check["what"]: check["ok"] for check in document["checks"]}
    assert found["source"]
    assert found["lake"]
    assert found["lease"]


def test_check_fails_where_a_part_does_not_fit(flights: Lakeward) -> None:
    said = flights("config", "check", "--set", "lease.backend=nowhere")
    assert said.code == 1
    assert any(line.startswith("problem  lease") and "nowhere" in line for line in said.out.splitlines())


def test_a_state_directory_that_is_a_file_is_refused_before_spark_starts(configured: Lakeward, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    said = configured("run", "--once", "--set", f"checkpoint.root={tmp_path / 'taken'}")
    assert said.code == 1
    assert (
        said.err
        == f"error[LW-302]: checkpoint.root: {tmp_path}/taken: expected a directory, but {tmp_path}/taken is a file\n"
    )
    assert "Spark" not in said.out.partition("\n")[2]


def test_check_shows_each_tables_layout_and_route(flights: Lakeward) -> None:
    lines = [line.split(maxsplit=1)[1] for line in flights("config", "check").out.splitlines()]
    assert "layout of nyc.flights  the layout of the source" in lines


def test_check_shows_tables_that_are_alike_in_one_line_and_each_in_json(flights: Lakeward) -> None:
    for number in range(5):
        assert flights("embedded", "create", f"nyc.t{number}", "--columns", "id bigint").code == 0
    (line,) = [line for line in flights("config", "check").out.splitlines() if "layout of" in line]
    found = line.split(maxsplit=1)[1]
    assert found == "layout of 6 tables (nyc.flights, nyc.t0, nyc.t1, ...)  the layout of the source"
    checks = flights("config", "check", "--json").document["checks"]
    assert sum(check["what"].startswith("layout of nyc.") for check in checks) == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "(Spark's local directories), at most 16 GiB a subtask"),
        (("--set", "checkpoint.spill_dirs=/data", "--set", "checkpoint.spill_quota=1024"), "in /data, at most 1"),
        (("--set", "checkpoint.during_recovery=false"), "none: checkpoints wait until a recovery is over"),
    ],
)
def test_check_says_where_a_recovery_spills_rows_that_are_exchanged(
    flights: Lakeward, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    def spills() -> list[str]:
        checks = flights("config", "check", "-o", "json", *words).document["checks"]
        return [check["message"] for check in checks if check["what"] == "spilled rows of a recovery"]

    assert spills() == [], "no row is exchanged"
    with (tmp_path / "lakeward.toml").open("a", encoding="utf-8") as file:
        file.write('[tables."nyc.flights"]\nlake_partition = ["bucket(4, id)"]\n')
    [found] = spills()
    assert said in found


def test_doctor_shows_layouts_and_names_dynamic_allocation(flights: Lakeward, tmp_path: Path) -> None:
    def doctor(*words: str) -> dict[str, tuple[bool, str]]:
        checks = flights("doctor", "--no-spark", "-o", "json", *words).document["checks"]
        return {check["what"]: (check["ok"], check["message"]) for check in checks}

    assert "layout of nyc.flights" not in doctor(), "it is the source's own"
    with (tmp_path / "lakeward.toml").open("a", encoding="utf-8") as file:
        file.write('[tables."nyc.flights"]\nlake_partition = ["bucket(4, id)"]\n')
    ok, message = doctor()["layout of nyc.flights"]
    assert ok
    assert message.startswith("bucket(4, id); exchange hash by partition: ")
    ok, message = doctor("--set", "spark.conf.spark.dynamicAllocation.enabled=true")["layout of nyc.flights"]
    assert not ok
    assert "expected `none`, because `spark.dynamicAllocation.enabled` is true" in message


def test_check_shows_a_partitioned_tables_layout_and_what_is_impossible(flights: Lakeward, tmp_path: Path) -> None:
    config = tmp_path / "lakeward.toml"
    text = config.read_text(encoding="utf-8")
    partitioned = text + '[tables."nyc.flights"]\nlake_partition = ["{field}"]\n'
    config.write_text(partitioned.format(field="name"), encoding="utf-8")
    (layout,) = flights("config", "check", "-o", "json").document["layouts"]
    assert (layout["lake_partition"], layout["exchange"], layout["error"]) == (["name"], "none", "")

    config.write_text(partitioned.format(field="day(name)"), encoding="utf-8")
    said = flights("config", "check")
    assert said.code == 1
    assert "problem  layout of nyc.flights" in said.out


@pytest.mark.parametrize("command", ["tables", "config check", "doctor --no-spark"])
def test_where_no_table_is_served_it_is_said_that_they_can_be_mirrored(
    flights: Lakeward, tmp_path: Path, command: str
) -> None:
    with EmbeddedStore.open(tmp_path / "store") as store:
        for spec in store.tables():
            store.set_property(spec.path, "table.datalake.enabled", "false")
    hint = 'set mode = "mirror" in [tables."nyc.*"]'
    assert hint in " ".join(flights(*command.split()).out.split())
    with open("lakeward.toml", "a", encoding="utf-8") as file:  # noqa: PTH123 - relative to the test's directory
        file.write('[tables."nyc.*"]\nmode = "mirror"\n')
    assert hint not in " ".join(flights(*command.split()).out.split())


def test_check_counts_mirrored_tables(flights: Lakeward, tmp_path: Path) -> None:
    with EmbeddedStore.open(tmp_path / "store") as store:
        store.set_property(TablePath("nyc", "flights"), "table.datalake.enabled", "false")
    with open("lakeward.toml", "a", encoding="utf-8") as file:  # noqa: PTH123 - as above
        file.write('[tables."nyc.*"]\nmode = "mirror"\n')
    assert "embedded, 1 table to tier" in flights("config", "check").out


def test_check_names_the_columns_that_the_lake_cannot_hold(flights: Lakeward, tmp_path: Path) -> None:
    columns = "id bigint not null, wave string"
    assert flights("embedded", "create", "nyc.sea", "--columns", columns, "--primary-key", "id").code == 0
    said = flights("config", "check")
    assert said.code == 1
    assert "problem  columns of nyc.sea" in said.out
    assert "[LW-404] nyc.sea: column 'wave'" in said.out
    with (tmp_path / "lakeward.toml").open("a", encoding="utf-8") as file:
        file.write('[tables."nyc.sea"]\ninclude = false\n')
    assert "nyc.sea" not in flights("config", "check").out


def warnings(lakeward: Lakeward, *words: str) -> dict[str, str]:
    said = lakeward("config", "check", "-o", "json", *words)
    return {check["what"]: check["message"] for check in said.document["checks"] if check["warning"]}


def test_check_warns_of_a_pattern_that_no_table_matches(flights: Lakeward, tmp_path: Path) -> None:
    with (tmp_path / "lakeward.toml").open("a", encoding="utf-8") as file:
        file.write('[tables."nyc.*"]\nfreshness_s = 9\n[tables."nyc.fligths"]\ninclude = false\n')
    said = "matches no table of the source."
    assert warnings(flights, "--set", "service.tables=nyc.flights, london.*") == {
        'tables."nyc.fligths"': f"{said} Did you mean 'nyc.flights'?",
        "service.tables: london.*": said,
    }
    assert flights("config", "check").code == 0


def test_check_says_that_patterns_were_not_checked_where_the_source_cannot_be_asked(
    flights: Lakeward, tmp_path: Path
) -> None:
    with (tmp_path / "lakeward.toml").open("a", encoding="utf-8") as file:
        file.write('[tables."nyc.*"]\nfreshness_s = 9\n')
    (message,) = warnings(flights, "--set", "source.path=nowhere").values()
    assert message == 'not checked whether tables match tables."nyc.*": the source cannot be asked'


def test_check_warns_of_columns_whose_names_differ_in_case_alone(flights: Lakeward) -> None:
    assert warnings(flights) == {}
    assert flights("embedded", "add-column", "nyc.flights", "Name string").code == 0
    message = warnings(flights)["columns of nyc.flights"]
    assert message.startswith("'name' and 'Name' differ in case alone")
    assert [line.split()[0] for line in flights("config", "check").out.splitlines() if "'Name'" in line] == ["warning"]


def test_check_warns_of_nested_fields_whose_names_differ_in_case_alone(flights: Lakeward, tmp_path: Path) -> None:
    stops = pa.list_(pa.struct([pa.field("at", pa.string()), pa.field("At", pa.string())]))
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("stops", stops)])
    with EmbeddedStore.open(tmp_path / "store") as store:
        store.create_table(TablePath("nyc", "routes"), schema)
    message = warnings(flights)["columns of nyc.routes"]
    assert message.startswith("'stops.element.at' and 'stops.element.At' differ in case alone")
