"""The command `lakeward`: finds the command, and turns errors into one line and an exit code."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, NoReturn

import click

from lakeward.cli.groups import PROGRAM, Lazy, command_group
from lakeward.cli.invocation import Invocation
from lakeward.cli.output import as_json
from lakeward.errors import EXIT_FAILED, EXIT_USAGE, LakewardError, StorageError
from lakeward.local_files import refusal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

EXIT_INTERRUPTED = 130
_END_S = 10.0

_HELP = """Tier streaming tables into lakehouse tables on Spark: leased, exactly once, resumable.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 outcome unknown, 130 interrupted.
A second signal ends a service at once, with 128 + the signal's number."""

COMMANDS = {
    "run": Lazy("lakeward.cli.run", "run", "Tier tables until stopped, or once."),
    "tables": Lazy("lakeward.cli.tables", "tables", "Show the status of each table; pause, resume, tier now."),
    "rounds": Lazy("lakeward.cli.rounds", "rounds", "Show the rounds that have ended."),
    "leases": Lazy("lakeward.cli.leases", "leases", "Show which KV snapshots are leased; drop a lease."),
    "checkpoints": Lazy(
        "lakeward.cli.checkpoints", "checkpoints", "Show the checkpoints of unfinished rounds; delete a checkpoint."
    ),
    "plugins": Lazy("lakeward.cli.plugins", "plugins", "Show what is installed; start a plugin of your own."),
    "config": Lazy("lakeward.cli.config", "config", "Show, check or write a configuration."),
}

lakeward = command_group(PROGRAM, _HELP, COMMANDS, plugins=True)
lakeward.context_settings["help_option_names"] = ["--help", "-h"]
"""Every command inherits them; click names the first one in `--help` and in its hints."""
click.version_option(package_name="lakeward", prog_name="lakeward")(lakeward)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and end the process with its exit code.

    `arguments` come after `lakeward`; None: those of the process.
    """
    code = run(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_at_once)
    _end_in_time(code)
    _end(code)


def _end_at_once(number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)


def _end(code: int) -> NoReturn:
    """End the process as the interpreter does, but do not take the interpreter apart.

    A thread that works on meanwhile (a catalog that hangs, an import) would be ended wherever it is; inside C++ that
    aborts the process.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public name: it deletes temporary directories and closes logs
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any longer
            stream.flush()
    os._exit(code)


def _end_in_time(code: int) -> None:
    """End the process even where something that a command left behind (a thread in a dead call) keeps it alive."""

    def end() -> None:
        os._exit(code)

    watchdog = threading.Timer(_END_S, end)
    watchdog.daemon = True
    watchdog.start()


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (`arguments` after `lakeward`; None: those of the process).

    Return the exit code: 0 done, 1 failed, 2 usage, 3 outcome unknown, 130 interrupted.
    """
    invocation = Invocation()
    try:
        result = lakeward.main(args=arguments, prog_name="lakeward", standalone_mode=False, obj=invocation)
    except click.ClickException as error:
        return _click_error(invocation, error)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except LakewardError as error:
        return _known_error(invocation, error)
    except Exception as error:  # noqa: BLE001 - nobody else catches it: print one line, or the traceback
        return _unexpected_error(invocation, error)
    return result if isinstance(result, int) else 0


def _known_error(invocation: Invocation, error: LakewardError) -> int:
    _print_traceback(invocation, error)
    _print_error(invocation, error.code, str(error), error.exit_code)
    return error.exit_code


def _click_error(invocation: Invocation, error: click.ClickException) -> int:
    hint = ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f" See `{error.ctx.command_path} --help`."
    _print_error(invocation, "LW-100", f"{error.format_message()}{hint}", EXIT_USAGE)
    return EXIT_USAGE


def _unexpected_error(invocation: Invocation, error: Exception) -> int:
    """Print what nobody expected; of a file that the system refused, which one and why: that is no bug."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        refused = StorageError(f"{error.filename}: {refusal(error, str(error.filename))}")
        refused.__cause__ = error
        return _known_error(invocation, refused)
    return _internal_error(invocation, error)


def _internal_error(invocation: Invocation, error: Exception) -> int:
    _print_traceback(invocation, error)
    message = f"internal error: {type(error).__name__}: {_first_line(error)}"
    again = "" if invocation.debug else "; run again with --debug for the traceback"
    _print_error(invocation, "LW-000", f"{message}{again}", EXIT_FAILED)
    return EXIT_FAILED


def _print_error(invocation: Invocation, code: str, message: str, exit_code: int) -> None:
    click.echo(invocation.secrets.hide(f"error[{code}]: {message}"), err=True)
    if invocation.form == "json":
        document = {"error": {"code": code, "message": message, "exit_code": exit_code}}
        click.echo(as_json(document, invocation.secrets))


def _print_traceback(invocation: Invocation, error: Exception) -> None:
    if invocation.debug:
        click.echo(invocation.secrets.hide("".join(traceback.format_exception(error))), err=True, nl=False)


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else "no message"
