"""Tests wait for events, not for a number of seconds: what depends on the machine's speed is no test.

A limit ends what hangs, so it is long: a machine beside which others work is slow, and in nothing wrong.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEAST_S = 60.0
"""The shortest limit of a wait."""

SLEEPS = {
    "plugins/testing/src/lakeward_testing/waiting.py": "the one place where tests look again and again",
    "plugins/source-fluss/tests/kit/lakeward_source_fluss_kit/world.py": "a real server's timers have no event",
    "plugins/source-fluss/tests/test_fluss_cluster_failures.py": "a server keeps a log on disk a while after a write",
    "tests/e2e/kit/lakeward_faulty/points.py": "an armed point can be a disk that is slow on purpose",
    "tests/e2e/test_chaos.py": "faults come at moments that a seed draws",
    "tests/rescale/kit/lakeward_rescale/__main__.py": "looks at children that may hang, and lets these say where",
    "tests/rescale/kit/lakeward_rescale/run.py": "failures come at moments that a seed draws",
    "tests/rescale/kit/lakeward_rescale/subtask.py": "reads slowly on purpose, so that a failure finds it at work",
    "tests/spark_cluster/kit/lakeward_cluster/rescales.py": "one deadline ends a whole run, whatever it waits for",
}
"""Files whose code may sleep, and why no event could be waited for."""

LIMITS = {
    "tests/core/kit/lakeward_service_kit/stand_in_gang.py": "a stand-in looks for more to do between two messages",
    "tests/e2e/kit/lakeward_e2e/stranger.py": "a port that says nothing for so long has given nothing away",
}
"""Files with waits that have a shorter limit, and why that does not depend on the machine's speed."""

_ENDS = {"join", "result", "timeout", "wait", "settimeout"}
"""Calls whose only positional number is a limit in seconds."""
_NAMED = {"timeout", "limit_s"}
"""Arguments that are a limit in seconds."""


def _files() -> list[Path]:
    places = ("tests/**/*.py", "plugins/*/tests/**/*.py", "plugins/testing/src/lakeward_testing/**/*.py")
    return sorted(file for place in places for file in ROOT.glob(place))


def _called(call: ast.Call) -> str:
    """Return the name of what is called, without what it belongs to."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _receiver(call: ast.Call) -> str:
    """Return the object whose method is called, as it is written."""
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _numbers(tree: ast.Module) -> dict[str, float]:
    """Return the constants of a module that are numbers."""
    pairs = [
        (target, node.value)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return {
        target.id: float(value.value)
        for target, value in pairs
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, int | float)
    }


def _limits(call: ast.Call) -> Iterator[ast.expr]:
    """Return what a call is given as a limit in seconds."""
    yield from (keyword.value for keyword in call.keywords if keyword.arg in _NAMED)
    if _called(call) in _ENDS and len(call.args) == 1:
        yield call.args[0]
    if _called(call) == "get" and len(call.args) == 1 and re.search(r"(?i)(mailbox|queue)$", _receiver(call)):
        yield call.args[0]
    if _called(call) == "wait_for" and len(call.args) > 1:
        yield call.args[1]


def sleeps(code: str) -> list[int]:
    """Return the lines in which code sleeps. To let others run, `asyncio.sleep(0)`, is no sleep."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if re.fullmatch(r"(time|asyncio)\.sleep", ast.unparse(call.func))
        and not (isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)
    ]


def short_limits(code: str) -> list[int]:
    """Return the lines in which code waits for less than `LEAST_S` at the most; 0 only looks, and waits for nothing."""
    tree = ast.parse(code)
    numbers = _numbers(tree)

    def seconds(value: ast.expr) -> float | None:
        if isinstance(value, ast.Name):
            return numbers.get(value.id)
        given = value.value if isinstance(value, ast.Constant) else None
        return float(given) if isinstance(given, int | float) and not isinstance(given, bool) else None

    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found = [(call.lineno, seconds(value)) for call in calls for value in _limits(call)]
    return sorted({line for line, limit in found if limit is not None and 0 < limit < LEAST_S})


@pytest.mark.parametrize("file", _files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_a_test_waits_for_events_and_never_for_seconds(file: Path) -> None:
    code, name = file.read_text(encoding="utf-8"), str(file.relative_to(ROOT))
    assert name in SLEEPS or sleeps(code) == [], "wait for an event, or with lakeward_testing.waiting"
    assert name in LIMITS or short_limits(code) == [], f"a limit that only ends what hangs is {LEAST_S:.0f} s or more"


def test_each_exception_is_one() -> None:
    read = {name: (ROOT / name).read_text(encoding="utf-8") for name in (*SLEEPS, *LIMITS)}
    assert [name for name in SLEEPS if not sleeps(read[name])] == []
    assert [name for name in LIMITS if not short_limits(read[name])] == []


@pytest.mark.parametrize(
    "code",
    ["time.sleep(1)", "time.sleep(_LOOK_S)", "async def f():\n    await asyncio.sleep(0.1)", "asyncio.sleep(seconds)"],
)
def test_a_sleep_is_found(code: str) -> None:
    assert sleeps(code)


@pytest.mark.parametrize(
    "code",
    [
        "event.wait(10)",
        "event.wait(timeout=10)",
        "thread.join(5.0)",
        "_WAIT_S = 20\nqueue.get(timeout=_WAIT_S)",
        "_WAIT_S: float = 20\nfuture.result(_WAIT_S)",
        "asyncio.timeout(15)",
        "asyncio.wait_for(task, 30)",
        "until(look, limit_s=5)",
        "lock.acquire(timeout=1)",
        "subprocess.run(command, timeout=59)",
        "self.mailbox.get(30)",
    ],
)
def test_a_short_limit_is_found(code: str) -> None:
    assert short_limits(code)


@pytest.mark.parametrize(
    "code",
    [
        "asyncio.sleep(0)",
        "event.wait(60)",
        "event.wait()",
        "thread.join()",
        "', '.join(names)",
        "process.wait(0)",
        "names.get(3)",
    ],
)
def test_what_waits_for_an_event_is_left_alone(code: str) -> None:
    assert (sleeps(code), short_limits(code)) == ([], [])
