from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakeward.model.jobs import JobSpec
from lakeward.model.settings import SparkSettings
from lakeward.spark.authentication import authentication_check
from lakeward.spark.session import retrying_master, spark_options
from lakeward.spark.tasks import TaskOfJob

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SECRET = b"the secret of this service run.."
SPEC = JobSpec("svc/1-1", 1, 2, "title", "tag", "pool", "127.0.0.1", 1, SECRET, 5.0)


def test_what_spark_broadcasts_of_a_job_has_no_secret() -> None:
    work = TaskOfJob(SPEC, str)
    assert SECRET not in pickle.dumps(work)
    assert SECRET in pickle.dumps(SPEC)


def test_a_job_shows_no_secret_where_it_is_printed() -> None:
    assert repr(SPEC) == repr(replace(SPEC, secret=b""))


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local[2,4]", " local[ 2 , 4 ] "])
def test_a_local_master_asks_who_speaks_to_it_and_is_reached_on_this_machine_alone(master: str, tmp_path: Path) -> None:
    options = spark_options(SparkSettings(master=master), tmp_path)
    assert options["spark.authenticate"] == options["spark.network.crypto.enabled"] == "true"
    assert options["spark.driver.host"] == options["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_configuration_that_turns_authentication_off_starts(tmp_path: Path) -> None:
    """Spark refuses encryption without it."""
    options = spark_options(SparkSettings(conf={"spark.authenticate": "false"}), tmp_path)
    assert "spark.network.crypto.enabled" not in options


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,1024]"])
def test_other_masters_are_left_to_the_settings_of_their_cluster(master: str, tmp_path: Path) -> None:
    options = spark_options(SparkSettings(master=master), tmp_path)
    assert not options.keys() & {"spark.authenticate", "spark.driver.host"}


def test_nobody_ends_a_job_on_sparks_own_page(tmp_path: Path) -> None:
    assert spark_options(SparkSettings(), tmp_path)["spark.ui.killEnabled"] == "false"


def test_the_tries_of_a_local_master_that_names_them_stay() -> None:
    assert retrying_master("local[2,7]", rounds=3) == "local[4,7]"


@pytest.mark.parametrize(
    ("options", "local", "said"),
    [
        ({"spark.authenticate": "true"}, False, "on: "),
        ({}, False, "off: whoever reaches the ports of the driver and of its executors can run code"),
        ({"spark.authenticate": "False"}, True, "off: any user of this machine can run code"),
    ],
)
def test_it_is_said_who_can_run_code_where_spark_does_not_ask(
    options: Mapping[str, str], local: bool, said: str
) -> None:
    check = authentication_check(options.get, local=local)
    assert check.ok
    assert check.message.startswith(said)
    assert bool(check.action) == said.startswith("off")
