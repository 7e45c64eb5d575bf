from __future__ import annotations

import errno
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from lakeward.cli import main
from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.reference import commands
from lakeward.errors import IllegalEventError, OutcomeUnknownError
from lakeward.hooks import discovery
from lakeward.model.secrets import MASK, SecretTexts

Lakeward = Callable[..., Any]
HEAVY = ("pyarrow", "pyspark", "pyiceberg", "dependency_injector", "numpy")
CONTEXT = click.Context(main.lakeward)
FIRST = [(first, main.lakeward.get_command(CONTEXT, first)) for first in main.lakeward.list_commands(CONTEXT)]
"""Those of installed packages too: `doctor`, `plan` and `verify` are some."""
NAMES = ["lakeward", *(name for first, made in FIRST if made for name, _ in commands(made, f"lakeward {first}"))]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from lakeward.cli.main import run; run(['--help']);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help(lakeward: Lakeward, name: str) -> None:
    said = lakeward(*name.split()[1:], "--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"Usage: {name}")


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_h_for_help(lakeward: Lakeward, name: str) -> None:
    assert lakeward(*name.split()[1:], "-h") == lakeward(*name.split()[1:], "--help")


@pytest.mark.parametrize("name", ["lakeward", "lakeward config", "lakeward embedded"])
def test_a_group_without_a_command_shows_its_help(lakeward: Lakeward, name: str) -> None:
    said = lakeward(*name.split()[1:])
    assert (said.code, said.err) == (0, "")
    assert said.out == lakeward(*name.split()[1:], "--help").out


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("lakeward ta", "tables"),
        ("lakeward embedded cre", "create"),
        ("lakeward tables pa", "pause"),
        ("lakeward run --on", "--once"),
    ],
)
def test_a_shell_completes_commands_and_options(words: str, offered: str) -> None:
    completion = {"_LAKEWARD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": f"{words.count(' ')}"}
    done = subprocess.run(
        [sys.executable, "-c", "from lakeward.cli.main import main; main()"],
        env={**os.environ, **completion},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"plain,{offered}\n", "")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("tables --jsn", "'--json'"),
        ("rounds list --jso", "'--json'"),
        ("run --onc", "'--once'"),
        ("tabels", "'tables'"),
        ("tables puase nyc.flights", "'pause'"),
        ("config chek", "'check'"),
        ("embedded crate", "'create'"),
        ("config show --set observe.level=warnin", "'warning'"),
        ("config show --set observ.level=info", "'observe'"),
        ("config show --set observe.levle=info", "'level'"),
        ("config show --set source.type=embeded", "'embedded'"),
    ],
)
def test_what_is_misspelt_is_answered_with_what_was_meant(configured: Lakeward, line: str, meant: str) -> None:
    said = configured(*line.split())
    assert said.code == 2
    assert re.search(f"Did you mean .*{meant}", said.err)


def test_json_is_short_for_the_output_as_json(configured: Lakeward) -> None:
    assert configured("config", "show", "--json").document == configured("config", "show", "-o", "json").document


OPERATE = Path(__file__).parents[3] / "docs" / "how-to" / "operate.md"
COMPLETION_LINES = dict(
    re.findall(
        r"^\| (Bash|Zsh|Fish).*\| `([^`]*_LAKEWARD_COMPLETE[^`]*)` \|$", OPERATE.read_text("utf-8"), re.MULTILINE
    )
)


@pytest.fixture
def lakeward_on_path(tmp_path: Path) -> dict[str, str]:
    """Give an environment whose PATH has `lakeward` as this Python runs it."""
    program = tmp_path / "bin" / "lakeward"
    program.parent.mkdir()
    words = "from lakeward.cli.main import main; main()"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{words}' \"$@\"\n", encoding="utf-8")
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


def test_the_documented_lines_are_of_three_shells() -> None:
    assert sorted(COMPLETION_LINES) == ["Bash", "Fish", "Zsh"]


@pytest.mark.parametrize("shell", ["Bash", "Zsh", "Fish"])
def test_the_documented_line_makes_a_shell_complete_our_commands(lakeward_on_path: dict[str, str], shell: str) -> None:
    """Bash is asked what it completes; of the other shells, which need not be here, the script is looked at."""
    line = COMPLETION_LINES[shell].replace("\\|", "|")
    if shell == "Bash":
        ask = 'COMP_WORDS=(lakeward tables pa); COMP_CWORD=2; _lakeward_completion lakeward; echo "${COMPREPLY[*]}"'
        words = ["bash", "-c", f"{line}\ncomplete -p lakeward && {ask}"]
    else:
        words = ["bash", "-c", line.replace("eval", "echo").replace("| source", "")]
    done = subprocess.run(words, env=lakeward_on_path, capture_output=True, encoding="utf-8", check=False)
    assert done.stderr == ""
    expected = {
        "Bash": "-F _lakeward_completion lakeward\npause\n",
        "Zsh": "#compdef lakeward",
        "Fish": "complete --no-files --command lakeward",
    }
    assert expected[shell] in done.stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("demo", "demo"),
        ("doctor --write", "ops"),
        ("plan nyc.flights -o json", "ops"),
        ("verify nyc.flights", "ops"),
        ("plugins new --kind lake my-own", "ops"),
        ("embedded list", "embedded"),
    ],
)
def test_a_command_that_is_not_installed_is_answered_with_the_extra_that_brings_it(
    lakeward: Lakeward, monkeypatch: pytest.MonkeyPatch, words: str, extra: str
) -> None:
    monkeypatch.setattr(discovery, "_scan", lambda _group: ())
    said = lakeward(*words.split())
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert f"Install it with: pip install 'lakeward[{extra}]'" in said.err


def test_a_lazy_command_of_a_plugin_is_listed_with_its_summary_and_imported_when_it_is_called(
    lakeward: Lakeward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site" / "some_plugin-1.5.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugin\nVersion: 1.5\n", encoding="utf-8")
    points = "[lakeward.command]\nspy = spying:spy\nplugins.spy = spying:spy\n"
    (folder / "entry_points.txt").write_text(points, encoding="utf-8")
    lazy = 'from lakeward.cli.extend import Lazy\nspy = Lazy("spying_at_work", "command", "Look around.")\n'
    (folder.parent / "spying.py").write_text(lazy, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder.parent))
    discovery.forget()
    try:
        assert re.search(r"^  spy +Look around\.$", lakeward("--help").out, re.MULTILINE)
        assert re.search(r"^  spy +Look around\.$", lakeward("plugins", "--help").out, re.MULTILINE)
        assert "No module named 'spying_at_work'" in lakeward("plugins", "spy").err
    finally:
        discovery.forget()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["tabels"], "Did you mean 'tables'?"),
        (["tables", "paus"], "Did you mean 'pause'?"),
        (["rounds", "shwo"], "Did you mean 'show'?"),
        (["tables", "flights"], "'flights'"),
        (["run", "--onec"], "--onec"),
        (["embedded", "create"], "DB.TABLE"),
        (["--output", "xml", "tables"], "xml"),
        (["config", "shwo"], "Did you mean 'show'?"),
        (["config", "show", "--set", "x"], "expected SECTION.KEY=VALUE"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_line(lakeward: Lakeward, words: list[str], text: str) -> None:
    said = lakeward(*words)
    assert said.code == 2
    assert said.err.startswith("error[LW-100]: ")
    assert text in said.err
    assert said.err.count("\n") == 1


def test_a_missing_configuration_is_one_line(lakeward: Lakeward) -> None:
    said = lakeward("tables")
    assert said.code == 2
    assert said.err.startswith("error[LW-200]: lakeward.toml: expected a configuration file")
    assert "Traceback" not in said.err


def test_debug_shows_the_traceback(lakeward: Lakeward) -> None:
    assert "Traceback (most recent call last)" in lakeward("tables", "--debug").err


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_is_in_an_error_or_its_traceback(
    lakeward: Lakeward, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    @click.command("failing")
    @with_common_options
    @pass_invocation
    def failing(invocation: Invocation) -> None:
        invocation.secrets = SecretTexts(["hush-hush"])
        message = "http://me:pass1@lake/cat?token=pass2 does not know hush-hush"
        raise OutcomeUnknownError(message) from KeyError(message)

    monkeypatch.setattr(main.lakeward, "get_command", lambda _context, _name: failing)
    said = lakeward("tables", "--debug", "-o", form)
    told = said.out + said.err
    assert said.code == 3
    assert told.count(f"http://{MASK}@lake/cat?token={MASK} does not know {MASK}") == (3 if form == "text" else 4)
    assert not [secret for secret in ("hush", "pass1", "pass2") if secret in told]


def test_an_error_is_json_on_standard_output_where_json_is_asked_for(lakeward: Lakeward) -> None:
    said = lakeward("tables", "--output", "json")
    error = said.document["error"]
    assert (error["code"], error["exit_code"]) == ("LW-200", 2)
    assert error["message"] in said.err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (OutcomeUnknownError("no answer"), 3, "error[LW-900]: no answer"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyError("x"), 1, "error[LW-000]: internal error: KeyError: 'x'; run again with --debug"),
        (PermissionError(errno.EACCES, "Permission denied", "/a/b"), 1, "error[LW-302]: /a/b: Permission denied\n"),
        (OSError("odd"), 1, "error[LW-000]: internal error: OSError: odd"),
        (IllegalEventError("rounds", "service serving", "Targets"), 1, "error[LW-101]: machine 'rounds'"),
        (click.Abort(), 130, "interrupted"),
    ],
)
def test_an_error_of_a_command_becomes_its_exit_code(
    lakeward: Lakeward, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, text: str
) -> None:
    @click.command("failing")
    def failing() -> None:
        raise error

    monkeypatch.setattr(main.lakeward, "get_command", lambda _context, _name: failing)
    said = lakeward("tables")
    assert said.code == code
    assert text in said.err


def test_options_may_stand_before_and_after_the_command(lakeward: Lakeward, tmp_path: Path) -> None:
    before = lakeward("--config", "x.toml", "-o", "json", "config", "show")
    after = lakeward("config", "show", "--config", "x.toml", "-o", "json")
    between = lakeward("config", "--config", "x.toml", "show", "-o", "json")
    assert before == after == between
    assert "x.toml" in before.document["error"]["message"]


def test_the_version_is_told(lakeward: Lakeward) -> None:
    assert lakeward("--version").out.startswith("lakeward, version ")


@pytest.mark.slow
def test_help_answers_at_once() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "from lakeward.cli.main import run; run(['--help'])"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used_s < 0.8, "about 0.2 s on an idle machine; time of the processor, so that other tests do not count"


def test_what_a_command_left_behind_does_not_keep_the_process_alive() -> None:
    """A pool of threads is waited for at the end of the interpreter, by Python itself."""
    code = (
        "import threading; from concurrent.futures import ThreadPoolExecutor; from lakeward.cli import main\n"
        "main._END_S = 0.2\n"
        "ThreadPoolExecutor().submit(threading.Event().wait)\n"
        "main.main(['config', 'shwo'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_while_the_process_ends_is_no_traceback(number: signal.Signals) -> None:
    """The first one of a command, or the second of a service whose stop is nearly over."""
    code = (
        "import os; from lakeward.cli import main\n"
        f"main._end_in_time = lambda code: os.kill(os.getpid(), {number:d})\n"
        "main.main(['--version'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert (done.returncode, done.stderr) == (128 + number, "")


def test_the_process_ends_before_python_takes_its_threads_apart() -> None:
    """Python ends threads that work on wherever they are; inside C++ that aborts the process."""
    code = (
        "import atexit, os; from lakeward.cli import main\n"
        "class Module:\n"
        "    def __del__(self): os._exit(99)\n"
        "taken_apart = Module()\n"
        "atexit.register(print, 'at exit', end='')\n"
        "main.main(['config', 'shwo'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "at exit")
