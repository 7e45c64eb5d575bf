"""A service while Spark starts, on a Java that does what the test wants: no session is ever there."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from lakeward.cli.main import run
from lakeward.clock import SystemClock
from lakeward.model.identity import Incarnation
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import reference, write_checkpoint
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]
JAVA = """#!/bin/sh
case "$1" in
  -version) echo 'openjdk version "17.0.1"' >&2 ;;
  *) {does} ;;
esac
"""
CONFIG = """
[service]
name = "tier"
[source]
type = "fluss"
bootstrap = "{server}"
[lake]
type = "iceberg"
warehouse = "{root}/warehouse"
[checkpoint]
root = "{root}/state"
[spark]
master = "local[1]"
ui = false
"""


def java_that(does: str, home: Path) -> str:
    """Make a JAVA_HOME whose Java knows its version and else does this."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(JAVA.format(does=does), encoding="utf-8")
    program.chmod(0o755)
    return str(home)


def silence(call: Call) -> Answer:
    """Take a connection, and say nothing: not even what the server can do."""
    return b"" if call.api == ApiKey.API_VERSIONS else None


def test_a_service_says_what_it_does_and_opens_its_source_while_spark_starts(world: World, tmp_path: Path) -> None:
    """It stops in order all the same."""
    java = java_that("exec sleep 600", tmp_path / "hanging")
    config = tmp_path / "fluss.toml"
    with FakeServer(silence) as server:
        config.write_text(CONFIG.format(root=tmp_path, server=server.endpoint), encoding="utf-8")
        service = world.start(config, "--progress", JAVA_HOME=java)
        wait_until(lambda: server.asked(ApiKey.API_VERSIONS), "the source to be opened")
        [first] = service.words().splitlines()
        assert "starting, Spark master local[1]" in first
        service.send(signal.SIGTERM)
        assert service.ended(75) == 0
    assert "error[" not in service.words()
    assert "Traceback" not in service.words()


def test_a_service_that_waits_for_spark_keeps_its_checkpoints_from_being_deleted(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has not written its status yet."""
    java, config, state = java_that("exec sleep 600", tmp_path / "hanging"), tmp_path / "fluss.toml", tmp_path / "state"
    checkpoint = reference(1, Incarnation("tier", 1000, "0123456789abcdef"))
    write_checkpoint(CheckpointFiles(SmallFiles(str(state)), SystemClock()), checkpoint)
    with FakeServer(silence) as server:
        config.write_text(CONFIG.format(root=tmp_path, server=server.endpoint), encoding="utf-8")
        service = world.start(config, JAVA_HOME=java)
        wait_until(lambda: server.asked(ApiKey.API_VERSIONS), "the source to be opened")
        assert not (state / "tier" / "status.json").exists()
        assert run(["checkpoints", "delete", "--config", str(config), "--yes", str(checkpoint)]) == 2
        assert "service tier starts or hangs and may need its checkpoints" in capsys.readouterr().err
        service.send(signal.SIGTERM)
        assert service.ended(75) == 0
    assert run(["checkpoints", "delete", "--config", str(config), "--yes", str(checkpoint)]) == 0


def test_a_spark_that_does_not_start_is_one_error(world: World, tmp_path: Path) -> None:
    java = java_that("exit 1", tmp_path / "broken")
    service = world.start(world.configure(), JAVA_HOME=java)
    assert service.ended() == 1
    errors = [line for line in service.words().splitlines() if line.startswith("error[")]
    assert len(errors) == 1
    assert "spark.master: expected a Spark that starts with master 'local[" in errors[0]
    assert "on Java version 17, JAVA_HOME (" in errors[0]
    assert "Traceback" not in service.words()


@pytest.mark.parametrize("own", ["", "-Dmine=1"], ids=["no options of the user's", "options of the user's"])
def test_an_archive_of_classes_is_used_unless_java_has_options_of_the_users(
    world: World, tmp_path: Path, own: str
) -> None:
    heard = tmp_path / "heard"
    java = java_that(f'echo "$@" >> {heard}; exit 1', tmp_path / "telling")
    keys = {"class_archive": f'"{tmp_path / "classes"}"'}
    if own:
        keys["conf"] = f'{{ "spark.driver.extraJavaOptions" = "{own}" }}'
    config = world.configure(spark_keys=keys)
    assert world.start(config, JAVA_HOME=java).ended() == 1
    told = heard.read_text(encoding="utf-8")
    assert ("-XX:ArchiveClassesAtExit=" in told) == (not own)
    assert own in told
