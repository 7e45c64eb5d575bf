"""The options that every command takes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakeward.cli.output import Output
from lakeward.errors import UsageError
from lakeward.model.durations import AS_TEXT, EXPECTED, parse_duration
from lakeward.model.secrets import SecretTexts

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.config.loaded import Loaded

F = TypeVar("F", bound="Callable[..., Any]")


@dataclass(slots=True)
class Invocation:
    """The values of the common options. `flags` maps `section.key` to its text.

    `secrets` are those of the configuration, once that is loaded.
    """

    config: Path | None = None
    form: str = "text"
    debug: bool = False
    flags: dict[str, object] = field(default_factory=dict)
    secrets: SecretTexts = field(default_factory=SecretTexts)

    @property
    def output(self) -> Output:
        """Where results go, in the form that was asked for."""
        return Output(self.form, self.secrets)

    def load(self) -> Loaded:
        """Load the configuration and set the logs up as it says.

        Raises:
            ConfigError, UsageError: as `load_config`.
        """
        from lakeward.config.loader import load_config  # noqa: PLC0415 - `--help` must not wait for it
        from lakeward.config.shown import secret_values  # noqa: PLC0415 - as above
        from lakeward.observe.logs import setup_logs  # noqa: PLC0415 - as above

        loaded = load_config(self.config, os.environ, self.flags)
        self.secrets = SecretTexts(secret_values(loaded))
        observe = loaded.settings.observe
        level = "debug" if self.debug else observe.level
        setup_logs(observe.log, level, traced=observe.telemetry, secrets=self.secrets)
        return loaded


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


def with_common_options(command: F) -> F:
    """Add the options that every command takes; a later one on the line wins over an earlier one."""
    # click puts the options of a function in reverse, those of a made command in order.
    for option in _COMMON if isinstance(command, click.Command) else reversed(_COMMON):
        command = option(command)
    return command


def take_key(key: str) -> Callable[[click.Context, click.Parameter, object], None]:
    """Return the callback of an option that sets one key, `section.key`, as `--set` does."""

    def take(context: click.Context, _: click.Parameter, value: object) -> None:
        if value is not None:
            _invocation(context).flags[key] = str(value)

    return take


def take_duration(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Be the callback of an option that is a time, such as `10m`; its value is seconds.

    Raises:
        UsageError: it is no time.
    """
    found = None if text is None else parse_duration(text)
    if text is not None and found is None:
        message = f"{option.opts[0]}: expected {EXPECTED}, {AS_TEXT}, found {text!r}"
        raise UsageError(message)
    return found


def _invocation(context: click.Context) -> Invocation:
    return context.ensure_object(Invocation)


def _take_config(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        _invocation(context).config = value


def _take_form(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        _invocation(context).form = value


def _take_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        _invocation(context).debug = True


def _take_flags(context: click.Context, _: click.Parameter, values: tuple[str, ...]) -> None:
    for text in values:
        name, equals, value = text.partition("=")
        if not equals:
            message = f"flag --set {text}: expected SECTION.KEY=VALUE"
            raise UsageError(message)
        _invocation(context).flags[name.strip()] = value.strip()


_COMMON = (
    click.option(
        "--config",
        "-c",
        type=click.Path(path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_take_config,
        help="Configuration file; default: $LAKEWARD_CONFIG, else ./lakeward.toml.",
    ),
    click.option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        multiple=True,
        expose_value=False,
        callback=_take_flags,
        help="Set one key over file and environment; may be repeated.",
    ),
    click.option(
        "--output",
        "-o",
        type=click.Choice(["text", "json"]),
        expose_value=False,
        callback=_take_form,
        help="Form of the results; default: text.",
    ),
    click.option(
        "--json",
        "form",
        flag_value="json",
        expose_value=False,
        callback=_take_form,
        help="The same as --output json.",
    ),
    click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_take_debug,
        help="Show the traceback of an error, and debug logs.",
    ),
)
