"""What tests let Spark's tasks run: each leaves a file in the directory that its round is named after."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward.model.jobs import SubtaskPlace


def note(place: SubtaskPlace) -> str:
    """End well."""
    _leave(place)
    return f"done {place.subtask}"


def fail(place: SubtaskPlace) -> str:
    """Fail each time, as a subtask whose disk is full."""
    _leave(place)
    message = "the disk is full"
    raise OSError(message)


def hang(place: SubtaskPlace) -> str:
    """Go on until killed."""
    _leave(place)
    threading.Event().wait()
    return "done"


def meet(place: SubtaskPlace) -> str:
    """End when all tasks of the job run at the same time, as subtasks that exchange rows need it."""
    _leave(place)
    everyone = {f"{subtask}-0" for subtask in range(place.job.subtasks)}
    wait_until(lambda: everyone <= {file.name for file in Path(place.job.round_name).iterdir()}, "the others")
    return "done"


def _leave(place: SubtaskPlace) -> None:
    Path(place.job.round_name, f"{place.subtask}-{place.spark_attempt}").touch()


def keep_order(order: bytes, attempt: int) -> str:
    """Say what a task of upkeep was given."""
    return f"{order.decode()}, attempt {attempt}"


def hang_on_order(order: bytes, attempt: int) -> str:
    """Leave a file in the folder that the order names, and go on until killed."""
    Path(order.decode(), f"upkeep-{attempt}").touch()
    threading.Event().wait()
    return "done"
