"""A start of Spark that nobody waits for any longer is ended."""

from __future__ import annotations

import threading
from pathlib import Path

from lakeward.model.settings import SparkSettings
from lakeward.owned_folder import OwnedFolder
from lakeward.spark.connecting import limited_connecting
from lakeward_testing.waiting import wait_until


def test_the_launcher_is_stopped_and_nothing_writes_into_its_folder_after_the_end(tmp_path: Path) -> None:
    """A file that is written while the folder is deleted stays, and the folder with it."""
    home, abandoned = OwnedFolder("launcher-", tmp_path), threading.Event()
    launcher = home.path / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text("exec java", encoding="utf-8")
    abandoned.set()
    with limited_connecting(SparkSettings(), home, threading.Event(), abandoned):
        wait_until(lambda: "exec java" not in launcher.read_text(encoding="utf-8"), "the launcher to be stopped")
    assert "spark-connecting" not in [thread.name for thread in threading.enumerate()]
    home.delete()
    assert list(tmp_path.iterdir()) == []
