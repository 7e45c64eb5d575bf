"""Lines of a task in a worker of Spark's: on standard error, each with its round and subtask."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import structlog

from lakeward.model.jobs import JobSpec, SubtaskPlace
from lakeward.model.spans import trace_id_of
from lakeward.subtask.task_log import begin_task_log, forget_task, task_log

if TYPE_CHECKING:
    from collections.abc import Iterator

JOB = JobSpec("svc-1-0123456789abcdef/7-3-2", 2, 4, "title", "tag", "t.log", "here", 1, b"", 5.0, log="json")


@pytest.fixture(autouse=True)
def kept_logging() -> Iterator[None]:
    """Give the process its logging back."""
    yield
    forget_task()
    structlog.reset_defaults()


def test_each_line_has_the_round_the_table_and_the_subtask(capsys: pytest.CaptureFixture[str]) -> None:
    begin_task_log(SubtaskPlace(JOB, 3, 1))
    task_log("lakeward.subtask").warning("the source does not answer", split="s1")
    line = json.loads(capsys.readouterr().err)
    assert (line["round"], line["table"], line["subtask"]) == (JOB.round_name, "t.log", 3)
    assert (line["launch"], line["spark_attempt"], line["split"]) == (2, 1, "s1")
    assert (line["event"], line["level"]) == ("the source does not answer", "warning")


def test_lines_of_what_receives_rows_have_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    begin_task_log(SubtaskPlace(replace(JOB, exchange=True), 0, 0))
    structlog.get_logger("lakeward.exchange").warning("channel refused")
    assert json.loads(capsys.readouterr().err)["round"] == JOB.round_name


def test_the_next_task_of_a_worker_has_its_own_fields(capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        begin_task_log(SubtaskPlace(JOB, number, 0))
        task_log("lakeward.subtask").warning("slow")
    assert [json.loads(line)["subtask"] for line in capsys.readouterr().err.splitlines()] == [1, 2]


def test_text_and_level_are_those_of_the_service(capsys: pytest.CaptureFixture[str]) -> None:
    begin_task_log(SubtaskPlace(replace(JOB, log="text"), 0, 0))
    task_log("lakeward.subtask").info("not shown")
    task_log("lakeward.subtask").warning("shown")
    (line,) = capsys.readouterr().err.splitlines()
    assert "shown" in line
    assert f"round={JOB.round_name}" in line


def test_a_task_without_a_line_does_not_load_the_logger() -> None:
    code = (
        "import sys; from lakeward.model.jobs import *; from lakeward.subtask.run import begin_task_log; "
        "begin_task_log(SubtaskPlace(JobSpec('r', 1, 1, 't', 't', 'p', 'h', 1, b'', 1.0), 0, 0)); "
        "print('structlog' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert answer.stdout.strip() == "False"


def test_a_traced_round_has_its_trace_id_on_lines_of_its_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    begin_task_log(SubtaskPlace(replace(JOB, traced=True), 0, 0))
    task_log("lakeward.subtask").warning("slow")
    assert json.loads(capsys.readouterr().err)["trace_id"] == trace_id_of(JOB.round_name)
