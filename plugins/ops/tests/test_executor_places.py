"""Whether an executor can write where the driver does: what it tries, and what `lakeward doctor` says of that."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from lakeward.spark.executor_report import try_places
from lakeward.spark.probe import ExecutorReport
from lakeward_ops.doctor.executor_check import executor_results, shared_places

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lakeward.ports import CheckResult

HERE = {"lakeward": version("lakeward")}


def results(root: str, seen: Mapping[str, tuple[bool, str]], lakeward: str = HERE["lakeward"]) -> list[CheckResult]:
    report = ExecutorReport("3.12.1", "/python", "worker-1", {"lakeward": lakeward}, "10.0.0.7", None, seen, 0.1)
    return list(executor_results(report, HERE, [("lake.warehouse", root, "folder")]))


def test_an_executor_that_shares_the_directory_writes_there_and_nothing_stays(tmp_path: Path) -> None:
    with shared_places({"lake.warehouse": str(tmp_path)}) as shared:
        seen = try_places(shared)
    assert seen == {"lake.warehouse": (True, "")}
    assert list(tmp_path.iterdir()) == []
    last = results(str(tmp_path), seen)[-1]
    assert (last.what, last.ok) == ("executor's lake.warehouse", True)
    assert last.message == f"{tmp_path}: a file was written and deleted on worker-1"


def test_a_directory_of_that_name_that_is_another_one_is_found_and_nothing_is_made_in_it(tmp_path: Path) -> None:
    """As on a worker on which nobody has mounted it."""
    elsewhere = tmp_path / "worker" / "lake"
    with shared_places({"lake.warehouse": str(tmp_path / "driver")}) as shared:
        seen = try_places([(name, str(elsewhere), folder) for name, _, folder in shared])
    assert seen == {"lake.warehouse": (False, "")}
    assert not elsewhere.parent.exists()
    last = results(str(elsewhere), seen)[-1]
    assert not last.ok
    assert f"{elsewhere} on worker-1 is not the directory that it is here" in last.message
    assert last.action.startswith("mount the same directory on every machine that Spark uses")


def test_an_executor_that_cannot_write_says_which_file_and_the_doctor_what_to_do(tmp_path: Path) -> None:
    with shared_places({"lake.warehouse": str(tmp_path)}) as shared:
        ((_, _, folder),) = shared
        (tmp_path / folder / "executor").mkdir()
        seen = try_places(shared)
        (tmp_path / folder / "executor").rmdir()
    there, error = seen["lake.warehouse"]
    assert there
    assert f"{tmp_path}/{folder}/executor" in error
    last = results(str(tmp_path), seen)[-1]
    assert not last.ok
    assert last.message == f"{tmp_path} cannot be used on worker-1: {error}"
    assert last.action.startswith("let the user of the executors write and delete there")


@pytest.mark.parametrize("place", ["s3://bucket/lake", "a file"])
def test_a_store_and_a_place_that_this_machine_cannot_write_are_left_to_other_lines(tmp_path: Path, place: str) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    with shared_places({"lake.warehouse": str(file) if place == "a file" else place}) as shared:
        assert shared == ()


def test_of_an_executor_with_another_release_only_that_is_said(tmp_path: Path) -> None:
    (only,) = results(str(tmp_path), {"lake.warehouse": (False, "ModuleNotFoundError")}, lakeward="0.0.1")
    assert not only.ok
    assert "found 0.0.1" in only.message
