from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakeward.config.loaded import Loaded
from lakeward.config.loader import load_config
from lakeward.errors import ConfigError, MissingPluginError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Load = Callable[..., Loaded]


def test_a_key_that_nobody_gives_has_its_default(load: Load) -> None:
    loaded = load()
    assert loaded.settings.service.rounds == 2
    assert loaded.provenance["service.rounds"] == "default"


def test_the_file_wins_over_the_default(load: Load) -> None:
    loaded = load("[service]\nrounds = 5")
    assert loaded.settings.service.rounds == 5
    assert loaded.provenance["service.rounds"] == "file lakeward.toml"


def test_the_environment_wins_over_the_file(load: Load) -> None:
    loaded = load("[service]\nrounds = 5", {"LAKEWARD_SERVICE__ROUNDS": "6"})
    assert loaded.settings.service.rounds == 6
    assert loaded.provenance["service.rounds"] == "environment LAKEWARD_SERVICE__ROUNDS"


def test_a_flag_wins_over_everything(load: Load) -> None:
    loaded = load("[service]\nrounds = 5", {"LAKEWARD_SERVICE__ROUNDS": "6"}, {"service.rounds": "7"})
    assert loaded.settings.service.rounds == 7
    assert loaded.provenance["service.rounds"] == "flag --set service.rounds"


def test_other_variables_of_ours_are_no_keys(load: Load) -> None:
    assert load("", {"LAKEWARD_PLUGINS_X": "a", "LAKEWARD_CONFIG": "b", "HOME": "/"}).settings.service.rounds == 2


def test_a_source_chosen_by_the_environment_brings_its_own_keys(pond: None, tmp_path: Path) -> None:
    file = tmp_path / "lakeward.toml"
    file.write_text('[source]\npath = "water"\n[lake]\ntype = "marsh"', encoding="utf-8")
    loaded = load_config(file, {"LAKEWARD_SOURCE__TYPE": "pond", "LAKEWARD_SOURCE__DEPTH_M": "3"})
    assert loaded.source_options.depth_m == 3.0


def test_keys_of_a_plugin_go_to_its_options(load: Load) -> None:
    loaded = load("", {"LAKEWARD_SOURCE__NAMES": "a, b"})
    assert loaded.source_options.names == ("a", "b")
    assert loaded.settings.source.options["names"] == ("a", "b")
    assert loaded.provenance["source.depth_m"] == "default"


def test_a_key_that_core_and_plugin_declare_is_one_key(load: Load) -> None:
    loaded = load("", flags={"lake.commit_timeout_s": "30"})
    assert loaded.settings.lake.commit_timeout_s == loaded.lake_options.commit_timeout_s == 30.0


def test_paths_are_relative_to_the_file(load: Load, tmp_path: Path) -> None:
    loaded = load()
    assert loaded.source_options.path == str(tmp_path / "water")
    assert loaded.source_options.cache == str(tmp_path / "cache")
    assert loaded.settings.checkpoint.root == str(tmp_path / "lakeward-state")


def test_a_uri_and_an_absolute_path_stay_as_they_are(load: Load) -> None:
    loaded = load('[checkpoint]\nroot = "s3://bucket/state"', flags={"source.path": "/pond"})
    assert loaded.settings.checkpoint.root == "s3://bucket/state"
    assert loaded.source_options.path == "/pond"


def test_a_plugin_says_itself_when_its_key_is_a_path(load: Load, tmp_path: Path) -> None:
    assert load(flags={"lake.warehouse": "w"}).lake_options.warehouse == str(tmp_path / "w")
    assert load(flags={"lake.warehouse": "w", "lake.kind": "rest"}).lake_options.warehouse == "w"


def test_nested_names_of_a_free_table_are_joined(load: Load) -> None:
    loaded = load("[spark.conf]\nspark.ui.port = 4041\nspark.ui.enabled = false")
    assert loaded.settings.spark.conf == {"spark.ui.port": "4041", "spark.ui.enabled": "false"}
    assert loaded.provenance["spark.conf.spark.ui.port"] == "file lakeward.toml"


def test_one_name_of_a_free_table_can_be_set_over_the_file(load: Load) -> None:
    variables = {"LAKEWARD_SPARK__CONF__SPARK__UI__PORT": "4042"}
    loaded = load('[spark.conf]\n"spark.ui.port" = "1"\na = "b"', variables, {"spark.conf.x.y": "z"})
    assert loaded.settings.spark.conf == {"spark.ui.port": "4042", "a": "b", "x.y": "z"}
    assert loaded.provenance["spark.conf.x.y"] == "flag --set spark.conf.x.y"


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ("[servce]\nrounds = 1", ["lakeward.toml: servce", "Did you mean 'service'?"]),
        ("[service]\nround = 1", ["lakeward.toml: service.round", "Did you mean 'rounds'?"]),
        ("[service]\nrounds = '1'", ["lakeward.toml: service.rounds", "a whole number at least 1", "found '1'"]),
        ("[service]\nrounds = true", ["a whole number", "found True"]),
        ("[service]\nrounds = 0", ["at least 1", "found 0"]),
        ("[service]\npoll_s = 0", ["a number of seconds above 0", "found 0.0"]),
        ("[service]\npoll_s = inf", ["a number of seconds above 0", "found inf"]),
        ("[service]\npoll_s = 1e10", ["a number of seconds above 0", "at most 1000000000, found 10000000000.0"]),
        (f"[service]\nrounds = {2**63}", ["a whole number at least 1, at most 9223372036854775807, found"]),
        ("[service]\nname = 'a-b'", ["service.name", "letters, digits", "found 'a-b'"]),
        ("[observe]\nlog = 'xml'", ["one of 'text', 'json'", "found 'xml'"]),
        ("[lease]\nwrappers = 'audit'", ["a list of texts", "found 'audit'"]),
        ("[lease]\nwrappers = [1]", ["a list of texts", "found [1]"]),
        ("[spark]\nconf = 'x'", ["a table", "found 'x'"]),
        ("[spark]\nui = 1", ["true or false", "found 1"]),
        ("[tables.nyc]\ninclude = true", ['tables."nyc"', "DATABASE.TABLE", "in quotes"]),
        ("[tables.'nyc.*']\nincluded = true", ['tables."nyc.*".included', "Did you mean 'include'?"]),
        ("[tables]\n'nyc.*' = 1", ['tables."nyc.*"', "a section", "found 1"]),
        ("[service]\nrenew_s = 50", ["service.renew_s", "less than service.fence_s (45 s)", "found 50.0"]),
        ("[service]\nfence_s = 70", ["below source.heartbeat_timeout_s (120 s)", "70 s + 60 s = 130 s"]),
        ("[service]\nbackoff_first_s = 500", ["at most backoff_most_s (300 s)", "found 500.0"]),
    ],
)
def test_a_wrong_file_is_refused_by_name(load: Load, more: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(more)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "parts"),
    [
        ({"LAKEWARD_SERVICE__ROUNDS": "many"}, ["environment LAKEWARD_SERVICE__ROUNDS", "a whole number", "'many'"]),
        ({"LAKEWARD_SERVIC__ROUNDS": "1"}, ["environment LAKEWARD_SERVIC__ROUNDS", "Did you mean 'service'?"]),
        ({"LAKEWARD_SERVICE__ROUND": "1"}, ["environment LAKEWARD_SERVICE__ROUND", "Did you mean 'rounds'?"]),
        ({"LAKEWARD_SPARK__UI": "maybe"}, ["true or false", "'maybe'"]),
        ({"LAKEWARD_SERVICE__ROUNDS__X": "1"}, ["no name below service.rounds", "'x'"]),
        ({"LAKEWARD_SOURCE__PASSWORD": ""}, ["environment LAKEWARD_SOURCE__PASSWORD", "is set, but empty"]),
        ({"LAKEWARD_SOURCE__PATH": ""}, ["environment LAKEWARD_SOURCE__PATH", "is set, but empty"]),
        ({"LAKEWARD_SOURCE__TYPE": ""}, ["environment LAKEWARD_SOURCE__TYPE", "is set, but empty"]),
        ({"LAKEWARD_SERVICE__ROUNDS": ""}, ["a whole number at least 1, found 'nothing'", "is set, but empty"]),
        ({"LAKEWARD_CHECKPOINT__STORAGE__SECRET_KEY": ""}, ["STORAGE__SECRET_KEY", "is set, but empty"]),
        ({"LAKEWARD_SOURCE__PROPERTIES__TOKEN": ""}, ["SOURCE__PROPERTIES__TOKEN", "is set, but empty"]),
        ({"LAKEWARD_SOURCE__DEPTH_M": "-1"}, ["a number above 0", "-1.0"]),
    ],
)
def test_a_wrong_variable_is_refused_by_name(load: Load, environ: dict[str, str], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load("", environ)
    for part in parts:
        assert part in str(caught.value)


def test_a_key_that_may_be_empty_takes_an_empty_variable(load: Load) -> None:
    loaded = load(
        "[service]\nhost = 'a'",
        {"LAKEWARD_SERVICE__HOST": "", "LAKEWARD_SPARK__CONF__A": "", "LAKEWARD_SOURCE__NAMES": ""},
    )
    assert (loaded.settings.service.host, loaded.settings.spark.conf) == ("", {"a": ""})


def test_an_empty_name_of_the_file_is_not_taken_for_none(pond: None) -> None:
    with pytest.raises(ConfigError, match=r"environment LAKEWARD_CONFIG: expected the path .* is set, but empty"):
        load_config(None, {"LAKEWARD_CONFIG": ""})


@pytest.mark.parametrize("flag", ["rounds", "servce.rounds", "service"])
def test_a_flag_without_a_known_section_is_a_usage_error(load: Load, flag: str) -> None:
    with pytest.raises(UsageError, match=r"expected SECTION\.KEY=VALUE"):
        load(flags={flag: "1"})


@pytest.mark.parametrize(("text", "value"), [("true", True), ("No", False), ("1", True), ("off", False)])
def test_a_yes_or_no_is_read_from_text(load: Load, text: str, value: Any) -> None:  # noqa: ANN401 - a truth value
    assert load(flags={"spark.ui": text}).settings.spark.ui is value


def test_a_key_at_the_top_is_refused(pond: None, tmp_path: Path) -> None:
    file = tmp_path / "lakeward.toml"
    file.write_text("name = 'x'", encoding="utf-8")
    with pytest.raises(ConfigError, match="only sections at the top level"):
        load_config(file, {})


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: expected a configuration file.*lakeward config init"):
        load_config(tmp_path / "nowhere.toml", {})


def test_a_syntax_error_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "lakeward.toml"
    file.write_text("[service]\nname = \n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"lakeward\.toml: expected TOML.*line 2"):
        load_config(file, {})


def test_a_directory_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a readable text file"):
        load_config(tmp_path, {})


def test_the_variable_names_the_file(pond: None, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('[source]\ntype = "pond"\npath = "p"\n[lake]\ntype = "marsh"', encoding="utf-8")
    assert load_config(None, {"LAKEWARD_CONFIG": str(file)}).file == file


def test_a_lake_that_is_not_installed_is_named(pond: None, tmp_path: Path) -> None:
    file = tmp_path / "lakeward.toml"
    file.write_text('[source]\ntype = "pond"\npath = "p"\n[lake]\ntype = "swamp"', encoding="utf-8")
    with pytest.raises(MissingPluginError, match="swamp"):
        load_config(file, {})


def test_keys_of_the_lease_backend_go_to_its_options(load: Load) -> None:
    loaded = load("[lease]\nbackend = 'pier'\nrequired = true")
    assert loaded.lease_options.required is True
    assert loaded.provenance["lease.required"] == "file lakeward.toml"
    assert load("[lease]\nbackend = 'raft'").lease_options is None


def test_a_key_of_the_lease_that_neither_core_nor_backend_knows_is_refused_by_name(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"lease.requird.*Did you mean 'required'"):
        load("[lease]\nbackend = 'pier'\nrequird = true")
    with pytest.raises(ConfigError, match=r"lease\.required"):
        load("[lease]\nbackend = 'raft'\nrequired = true")


def test_metrics_stand_around_the_lease_backend_unless_said_otherwise(load: Load) -> None:
    assert load().settings.lease.wrappers == ("metrics",)
    assert load("[lease]\nwrappers = []").settings.lease.wrappers == ()


def test_a_byte_order_mark_at_the_start_of_the_file_is_skipped(pond: None, tmp_path: Path) -> None:
    file = tmp_path / "lakeward.toml"
    file.write_text('[source]\ntype = "pond"\npath = "water"\n[lake]\ntype = "marsh"', encoding="utf-8-sig")
    assert load_config(file, {}).settings.source.type == "pond"


def test_an_empty_file_says_so_and_how_to_get_a_full_one(pond: None, tmp_path: Path) -> None:
    file = tmp_path / "empty.toml"
    file.touch()
    with pytest.raises(ConfigError, match=r"^empty\.toml: source\.path: expected .*The file is empty.*config init"):
        load_config(file, {}, {"source.type": "pond", "lake.type": "marsh"})


def test_a_key_that_is_missing_is_named_with_its_file(pond: None, tmp_path: Path) -> None:
    file = tmp_path / "lakeward.toml"
    file.write_text('[source]\ntype = "pond"\n[lake]\ntype = "marsh"', encoding="utf-8")
    expected = r"^lakeward\.toml: source\.path: expected a text \(Where the pond lies\), found 'nothing'"
    with pytest.raises(ConfigError, match=expected):
        load_config(file, {})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LAKEWARD_SERVICE_PORT", "LAKEWARD_SERVICE__PORT"),
        ("LAKEWARD_SERVICE_FENCE_S", "LAKEWARD_SERVICE__FENCE_S"),
        ("LAKEWARD_SPARK_CONF__X", "LAKEWARD_SPARK__CONF__X"),
    ],
)
def test_a_variable_with_one_underscore_after_the_section_is_refused(load: Load, name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"^environment {name}: expected .*{meant}"):
        load("", {name: "1"})


def test_variables_that_kubernetes_makes_of_a_service_called_lakeward_are_no_keys(load: Load) -> None:
    made = {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "LAKEWARD_SERVICE_HOST": "10.0.0.9",
        "LAKEWARD_SERVICE_PORT": "7000",
        "LAKEWARD_SERVICE_PORT_CONTROL": "7000",
    }
    assert load("", made).settings.service.port == 0


def test_a_port_that_cannot_be_is_refused(load: Load) -> None:
    with pytest.raises(
        ConfigError, match=r"service\.port: expected a whole number at least 0 at most 65535, found 65536"
    ):
        load("[service]\nport = 65536")


def test_a_subtask_that_may_have_no_open_file_is_refused(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"lake\.open_files: expected a whole number at least 1, found 0"):
        load("", flags={"lake.open_files": "0"})
