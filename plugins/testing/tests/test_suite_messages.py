"""Each check of the suites for plugins says in words where it was, what was expected and what was found."""

from __future__ import annotations

import ast
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import lakeward_testing
from lakeward_testing.expectations import expect_error, expect_no_error, mismatch

SUITES = (
    "interruptions",
    "lake_conformance",
    "lake_fencing",
    "lake_partitions",
    "lake_resume",
    "lake_tables",
    "lake_upkeep",
    "lease_conformance",
    "levels",
    "source_conformance",
    "source_reading",
    "source_steps",
    "wrapper_conformance",
)


@pytest.mark.parametrize("suite", SUITES)
def test_no_check_of_a_suite_is_without_a_message(suite: str) -> None:
    text = (Path(lakeward_testing.__file__).parent / f"{suite}.py").read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    bare = [node.lineno for node in nodes if isinstance(node, ast.Assert) and node.msg is None]
    raises = [node.lineno for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises"]
    assert (bare, raises) == ([], [])


@pytest.mark.parametrize("suite", SUITES)
def test_each_message_says_what_was_expected_and_what_was_found(suite: str) -> None:
    text = (Path(lakeward_testing.__file__).parent / f"{suite}.py").read_text(encoding="utf-8")
    written = [
        ast.unparse(node.msg)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Assert) and isinstance(node.msg, (ast.Constant, ast.JoinedStr))
    ]
    assert [message for message in written if "expected" not in message or "found" not in message] == []


def test_a_value_that_is_too_long_to_read_is_cut_in_the_middle() -> None:
    said = mismatch("acquire: leases", {}, {number: number for number in range(10_000)})
    assert said.startswith("acquire: leases: expected {}, found {0: 0, 1: 1, ")
    assert said.endswith(", 9999: 9999}")
    assert len(said) < 500


def test_an_error_that_does_not_come_is_named() -> None:
    with (
        pytest.raises(AssertionError, match=r"^drop of a lease: expected KeyError, found no error \("),
        expect_error(KeyError, "drop of a lease"),
    ):
        pass


def test_another_error_is_named_with_its_text_and_stays_the_cause() -> None:
    with pytest.raises(AssertionError, match=r"^drop: expected KeyError, found OSError: no disk$") as caught:
        _raise_within(expect_error(KeyError, "drop"), OSError("no disk"))
    assert isinstance(caught.value.__cause__, OSError)


def test_an_error_of_the_right_kind_with_another_text_is_no_pass() -> None:
    with pytest.raises(AssertionError, match="drop: expected OSError with a text that contains 'disk', found 'no net'"):
        _raise_within(expect_error(OSError, "drop", match="disk"), OSError("no net"))


def test_an_error_that_is_expected_is_given_to_the_test() -> None:
    with expect_error(ValueError, "parsing", match="invalid literal") as caught:
        int("x")
    assert str(caught.value).endswith("'x'")


def test_an_error_where_none_is_expected_is_named_and_stays_the_cause() -> None:
    with pytest.raises(AssertionError, match=r"^drop, twice: expected no error, found OSError: no disk$") as caught:
        _raise_within(expect_no_error("drop, twice"), OSError("no disk"))
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_is_no_failed_check(end: type[BaseException]) -> None:
    with pytest.raises(end):
        _raise_within(expect_error(KeyError, "drop"), end())
    with pytest.raises(end):
        _raise_within(expect_no_error("drop"), end())


def _raise_within(block: AbstractContextManager[object], error: BaseException) -> None:
    with block:
        raise error
