"""A world for services without Spark, see `lakeward_service_kit.service_world`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from lakeward.coordinator.service import reporter, stop
from lakeward.hooks import discovery
from lakeward_service_kit.service_world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module", autouse=True)  # a package's fixtures outlive it where files run in turn with others'
def folder_lake_is_installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Publish the folder lake under its entry point, as an installed package would."""
    place = tmp_path_factory.mktemp("site")
    info = place / "folder_lake-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: folder-lake\nVersion: 0.1\n", encoding="utf-8")
    entry = "[lakeward.lake]\nfolder = lakeward_testing.folder_lake:FolderLakePlugin\n"
    entry += "full = lakeward_service_kit.full_disk:FullDiskLakePlugin\n"
    entry += "[lakeward.source]\nheld = lakeward_service_kit.held_source:HeldSourcePlugin\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")
    sys.path.insert(0, str(place))
    discovery.forget()
    yield
    sys.path.remove(str(place))
    discovery.forget()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A fresh source and lake, whose services look and report more often: tests wait for what they say."""
    monkeypatch.setattr(stop, "_TURN_S", 0.01)
    monkeypatch.setattr(reporter, "_EVERY_S", 0.05)
    return World.create(tmp_path)
