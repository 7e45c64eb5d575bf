"""Keys that a cluster needs to fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakeward.config.loaded import Loaded

    Load = Callable[..., Loaded]


@pytest.mark.parametrize("master", ["spark://m:7077", "yarn", "k8s://https://api:6443"])
@pytest.mark.parametrize("root", ["state", "/var/lakeward", "file:///var/lakeward"])
def test_a_state_directory_of_one_machine_is_refused_on_a_cluster(load: Load, master: str, root: str) -> None:
    with pytest.raises(ConfigError, match=r"checkpoint\.root: expected .*spark\.master.*checkpoint\.shared"):
        load(f'[spark]\nmaster = "{master}"\n[checkpoint]\nroot = "{root}"')


@pytest.mark.parametrize("master", ["local", "local[*]", "local[4]", "local[4,2]", "local-cluster[2,1,1024]"])
def test_a_spark_on_this_machine_may_keep_its_state_in_a_directory(load: Load, tmp_path: Path, master: str) -> None:
    assert load(f'[spark]\nmaster = "{master}"').settings.checkpoint.root == str(tmp_path / "lakeward-state")


def test_a_cluster_may_keep_its_state_in_an_object_store(load: Load) -> None:
    text = '[spark]\nmaster = "yarn"\n[checkpoint]\nroot = "s3://bucket/state"'
    assert load(text).settings.checkpoint.root == "s3://bucket/state"


def test_a_cluster_may_keep_its_state_on_a_mount_that_is_declared_shared(load: Load) -> None:
    text = '[spark]\nmaster = "yarn"\n[checkpoint]\nroot = "/mnt/state"\nshared = true'
    assert load(text).settings.checkpoint.root == "/mnt/state"


@pytest.mark.parametrize(
    "host", ["", "worker.internal", "10.0.0.7", "fd00::7", "10.0.0.0/8", "10.1.2.3/32", "fd00::/8", "::1/128"]
)
def test_executors_reach_each_other_at_a_name_an_address_or_their_own_ones_in_a_network(load: Load, host: str) -> None:
    assert load(f'[spark]\nexchange_host = "{host}"').settings.spark.exchange_host == host


@pytest.mark.parametrize("host", ["10.0.0.0/33", "10.0.0/8", "fd00::/129", "fd00:/8", "workers/8", "/8", "10.0.0.0/"])
def test_a_network_that_is_none_is_refused(load: Load, host: str) -> None:
    expected = r"lakeward\.toml: spark\.exchange_host: expected .* a network such as 10\.0\.0\.0/8 or fd00::/8"
    with pytest.raises(ConfigError, match=rf"{expected}, found '{host}'"):
        load(f'[spark]\nexchange_host = "{host}"')


def test_a_network_with_the_address_of_one_machine_is_refused(load: Load) -> None:
    """It would be read as the whole network, while its author may have meant that machine."""
    with pytest.raises(ConfigError, match=r"found '10\.0\.0\.7/8'\. 10\.0\.0\.7/8 has host bits set"):
        load('[spark]\nexchange_host = "10.0.0.7/8"')


def test_an_endpoint_of_telemetry_that_is_no_url_is_refused(load: Load) -> None:
    expected = r"lakeward\.toml: observe\.telemetry_endpoint: expected a URL .*, found 'localhost:4318'"
    with pytest.raises(ConfigError, match=expected):
        load('[observe]\ntelemetry = true\ntelemetry_endpoint = "localhost:4318"')


def test_a_port_beyond_65535_is_refused(load: Load) -> None:
    with pytest.raises(
        ConfigError, match=r"service\.port: expected a whole number at least 0 at most 65535, found 65536"
    ):
        load("[service]\nport = 65536")


@pytest.mark.parametrize(
    "master",
    ["lokal", "local[0]", "local[]", "local[two]", "local[2", "local-cluster[2]", "spark:", "Yarn ", "", "yarn client"],
)
def test_a_master_that_spark_does_not_know_is_refused_with_those_that_it_does(load: Load, master: str) -> None:
    with pytest.raises(ConfigError, match=r"spark\.master: expected `local\[N\]` with N of 1 or more") as caught:
        load(f'[spark]\nmaster = "{master}"')
    assert caught.value.found == master


@pytest.mark.parametrize("key", ["spark.driver.memory", "spark.executor.memory", "spark.executor.memoryOverhead"])
def test_a_memory_that_is_no_size_is_refused_by_its_key(load: Load, key: str) -> None:
    with pytest.raises(ConfigError, match=r"expected a size as Spark has it, such as `512m`") as caught:
        load(f'[spark.conf]\n"{key}" = "lots"')
    assert caught.value.key == f'lakeward.toml: spark.conf."{key}"'
    for size in ("2g", "512m", "1024", "2GB"):
        load(f'[spark.conf]\n"{key}" = "{size}"')
