"""Groups that import a command only when it is called: `lakeward --help` answers at once."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.invocation import with_common_options
from lakeward.errors import PluginError
from lakeward.hooks.discovery import DISTRIBUTIONS, installed, load
from lakeward.hooks.plugins import COMMAND_GROUP
from lakeward.model.near_names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Lazy:
    """Where a command lies, and its line in the list of commands."""

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """A group of commands that are imported on demand; one may stand for the group itself.

    Its methods override click's, with click's arguments (`typing.override` comes with Python 3.12 only).
    """

    def __init__(
        self,
        name: str,
        lazy: Mapping[str, Lazy],
        *,
        default: str | None = None,
        hints: Mapping[str, str] | None = None,
        **attributes: Any,  # noqa: ANN401 - click's own
    ) -> None:
        """Name the commands: `lazy` has the place of each.

        `default` is the command that is meant where none is named (None: help is shown); `hints` say, by the name of a
        command that there is not, what to do instead.
        """
        super().__init__(name, no_args_is_help=False, **attributes)
        self._lazy = lazy
        self._default = default
        self._hints = hints or {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return all names, in the order they were given."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command; None where there is none of that name."""
        lazy = self._lazy.get(cmd_name)
        if lazy is None:
            return None
        command = getattr(importlib.import_module(lazy.module), lazy.attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - our own table of commands names it
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command in where none is named; without a default, no words at all ask for help."""
        if ctx.resilient_parsing:  # a shell asks which words may follow
            return super().parse_args(ctx, args)
        if self._default is None and not args:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        names_one = any(each in self._lazy for each in args) or self._is_mistyped(args)
        asks_for_help = bool(args) and args[0] in ctx.help_option_names
        if self._default is not None and not asks_for_help and not names_one:
            args = [self._default, *args]
        return super().parse_args(ctx, args)

    def _is_mistyped(self, args: list[str]) -> bool:
        """Return whether the first word is nearly a command, and no table: the default command may take one."""
        return bool(args) and "." not in args[0] and bool(did_you_mean(args[0], self._lazy))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the named command; an unknown one is answered with the nearest name."""
        known = self.list_commands(ctx)
        if args and args[0] not in known:
            hint = self.hint(args[0]) or did_you_mean(args[0], known) or f"Known: {', '.join(known)}."
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)

    def hint(self, name: str) -> str:
        """Return what to do about a command that is missing, empty where nothing is known."""
        return self._hints.get(name, "")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands by their summaries, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in self._lazy.items()])


class PluginGroup(LazyGroup):
    """A group that also has the commands that installed plugins publish (entry-point group `lakeward.command`)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return our own names in the order they were given, then those of plugins."""
        own = super().list_commands(ctx)
        return [*own, *sorted({plugin.name for plugin in installed(COMMAND_GROUP)} - set(own))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one of ours or a plugin's; ours win."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or all(plugin.name != cmd_name for plugin in installed(COMMAND_GROUP)):
            return own
        command = load(COMMAND_GROUP, cmd_name)
        if not isinstance(command, click.Command):
            message = f"command {cmd_name!r}: its entry point names {command!r}, expected a click command"
            raise PluginError(message)
        return command

    def hint(self, name: str) -> str:
        """Name the distribution of Lakeward that has the command."""
        distribution = DISTRIBUTIONS[COMMAND_GROUP].get(name)
        return "" if distribution is None else f"Install it with: pip install {distribution}"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List our own commands, then those of plugins, which are imported for their summaries."""
        super().format_commands(ctx, formatter)
        own = super().list_commands(ctx)
        rows = [
            (name, command.get_short_help_str(limit=formatter.width))
            for name in self.list_commands(ctx)
            if name not in own and (command := self.get_command(ctx, name)) is not None
        ]
        if rows:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(rows)


def command_group(
    name: str,
    help_text: str,
    lazy: Mapping[str, Lazy],
    default: str | None = None,
    *,
    plugins: bool = False,
    hints: Mapping[str, str] | None = None,
) -> LazyGroup:
    """Make a group that takes the common options. Its arguments are as in `LazyGroup`.

    `help_text` is what `--help` says first. With `plugins`, the commands that installed plugins publish are offered
    too.
    """
    group = (PluginGroup if plugins else LazyGroup)(name, lazy, default=default, hints=hints, help=help_text)
    return with_common_options(group)
