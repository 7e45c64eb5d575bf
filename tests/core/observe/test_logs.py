from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest
import structlog

from lakeward.model.secrets import MASK, SecretTexts
from lakeward.model.spans import trace_id_of
from lakeward.observe.logs import setup_logs

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def kept_logging() -> Iterator[None]:
    """Give the process its logging back."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logs("json", "info")
    structlog.get_logger("lakeward.x").info("round over", rows=3)
    (line,) = lines(capsys)
    logged = json.loads(line)
    assert (logged["event"], logged["rows"], logged["level"], logged["logger"]) == (
        "round over",
        3,
        "info",
        "lakeward.x",
    )


def test_the_standard_librarys_loggers_take_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logs("json", "info")
    logging.getLogger("some.library").warning("slow %d", 7)
    (line,) = lines(capsys)
    assert json.loads(line)["event"] == "slow 7"


def test_text_names_level_event_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logs("text", "info")
    structlog.get_logger("lakeward.x").warning("round over", rows=3)
    (line,) = lines(capsys)
    for part in ("warning", "round over", "rows=3"):
        assert part in line


def test_what_is_below_the_level_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logs("text", "warning")
    structlog.get_logger("lakeward.x").info("quiet")
    logging.getLogger("some.library").info("quiet")
    assert lines(capsys) == []


@pytest.mark.parametrize("name", ["pyspark.sql", "py4j.java_gateway"])
def test_noisy_libraries_are_quiet_below_a_warning(capsys: pytest.CaptureFixture[str], name: str) -> None:
    setup_logs("text", "debug")
    logging.getLogger(name).info("chatter")
    assert lines(capsys) == []


def test_a_second_set_up_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logs("text", "info")
    setup_logs("json", "info")
    structlog.get_logger("lakeward.x").info("once")
    assert len(lines(capsys)) == 1


def test_an_exception_is_logged_whole(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logs("json", "info")
    try:
        int("broken")
    except ValueError:
        structlog.get_logger("lakeward.x").exception("it broke")
    assert "invalid literal" in json.loads(lines(capsys)[0])["exception"]


def test_what_py4j_tells_the_root_logger_of_a_java_process_that_has_ended_is_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    setup_logs("text", "info")
    record = logging.LogRecord("root", logging.INFO, "/x/py4j/clientserver.py", 1, "Exception while sending", (), None)
    logging.getLogger().handle(record)
    logging.getLogger().info("ours")
    told = capsys.readouterr().err
    assert "Exception while sending" not in told
    assert "ours" in told


def test_a_line_with_a_round_has_the_id_of_its_trace_where_rounds_are_traced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    setup_logs("json", "info", traced=True)
    structlog.get_logger("lakeward.x").info("round over", round="svc-1-0123456789abcdef/7-3-2")
    with structlog.contextvars.bound_contextvars(round="svc-1-0123456789abcdef/7-3-2"):
        logging.getLogger("some.library").warning("slow")
    structlog.get_logger("lakeward.x").info("heartbeat")
    over, slow, heartbeat = (json.loads(line) for line in lines(capsys))
    assert over["trace_id"] == slow["trace_id"] == trace_id_of("svc-1-0123456789abcdef/7-3-2")
    assert "trace_id" not in heartbeat


def test_no_line_has_a_trace_id_where_nothing_is_traced(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logs("json", "info")
    structlog.get_logger("lakeward.x").info("round over", round="svc-1-0123456789abcdef/7-3-2")
    assert "trace_id" not in json.loads(lines(capsys)[0])


def fail(message: str) -> None:
    raise OSError(message)


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_masked_in_every_part_of_a_line(capsys: pytest.CaptureFixture[str], form: str) -> None:
    setup_logs(form, "info", secrets=SecretTexts(["hush-hush"]))
    message = "refused by https://me:hush1@host/cat?pw=hush2: hush-hush"
    try:
        fail(message)
    except OSError as error:
        facts = {"reason": str(error), "cause": error, "more": {"tried": [message]}}
        structlog.get_logger("lakeward.x").warning(f"away: {message}", exc_info=error, **facts)
        logging.getLogger("some.library").exception("away: %s", message)
    text = "\n".join(lines(capsys))
    assert "hush" not in text
    assert text.count(f"refused by https://{MASK}@host/cat?pw={MASK}") >= 7
    if form == "json":
        assert len([json.loads(line) for line in text.splitlines()]) == 2
