"""Groups that import a command only when it is called: `lakeward --help` answers at once.

Plugins have commands too, by the entry-point group `lakeward.command`. The entry point's name is the command's; the
name of its group and a dot come first where it is one of a group: `plugins.new`. It names a click command or a `Lazy`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.invocation import with_common_options
from lakeward.errors import PluginError
from lakeward.hooks.discovery import installed, load
from lakeward.hooks.extras import extra_of_command
from lakeward.hooks.plugins import COMMAND_GROUP
from lakeward.model.near_names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


PROGRAM = "lakeward"
_SUMMARY = 60
"""Characters of a plugin's summary in the list of commands."""


@dataclass(frozen=True, slots=True)
class Lazy:
    """Where a command lies, and its line in the list of commands."""

    module: str
    attribute: str
    summary: str

    def load(self) -> click.Command:
        """Import the command."""
        command = getattr(importlib.import_module(self.module), self.attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - who made this names a command
        return command


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
        return None if lazy is None else lazy.load()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command in where none is named; without a default, no words at all ask for help."""
        if ctx.resilient_parsing:  # a shell asks which words may follow
            return super().parse_args(ctx, args)
        if self._default is None and not args:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        known = self.list_commands(ctx)
        names_one = any(each in known or self.hint(each) for each in args) or self._is_mistyped(args, known)
        asks_for_help = bool(args) and args[0] in ctx.help_option_names
        if self._default is not None and not asks_for_help and not names_one:
            args = [self._default, *args]
        return super().parse_args(ctx, args)

    def _is_mistyped(self, args: list[str], known: Iterable[str]) -> bool:
        """Return whether the first word is nearly a command, and no table: the default command may take one."""
        return bool(args) and "." not in args[0] and bool(did_you_mean(args[0], known))

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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by their summaries; those of our own are not imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summary(ctx, name)) for name in self.list_commands(ctx)])

    def summary(self, ctx: click.Context, name: str) -> str:  # noqa: ARG002
        """Return a command's line in the list of commands."""
        return self._lazy[name].summary


class PluginGroup(LazyGroup):
    """A group that also has the commands that installed plugins publish for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return our own names in the order they were given, then those of plugins."""
        own = super().list_commands(ctx)
        names = {plugin.name for plugin in installed(COMMAND_GROUP)}
        published = {name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)}
        return [*own, *sorted(name for name in published if name not in own and "." not in name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one of ours or a plugin's; ours win."""
        if cmd_name in self._lazy or cmd_name not in self.list_commands(ctx):
            return super().get_command(ctx, cmd_name)
        found = self._published(cmd_name)
        return found.load() if isinstance(found, Lazy) else found

    def hint(self, name: str) -> str:
        """Name the extra of Lakeward that has the command."""
        extra = extra_of_command(f"{self._prefix}{name}")
        return f"Install it with: pip install 'lakeward[{extra}]'." if extra else ""

    def summary(self, ctx: click.Context, name: str) -> str:
        """Return a command's line in the list; a plugin's command that is not lazy is imported for it."""
        if name in self._lazy:
            return super().summary(ctx, name)
        found = self._published(name)
        return found.summary if isinstance(found, Lazy) else found.get_short_help_str(limit=_SUMMARY)

    @property
    def _prefix(self) -> str:
        """What comes before the names of this group's commands where plugins publish them."""
        return "" if self.name == PROGRAM else f"{self.name}."

    def _published(self, name: str) -> click.Command | Lazy:
        found = load(COMMAND_GROUP, f"{self._prefix}{name}")
        if not isinstance(found, click.Command | Lazy):
            message = f"command {name!r}: its entry point names {found!r}, expected a click command"
            raise PluginError(message)
        return found


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

    `help_text` is what `--help` says first. With `plugins`, the commands that installed plugins publish for it are
    offered too.
    """
    group = (PluginGroup if plugins else LazyGroup)(name, lazy, default=default, hints=hints, help=help_text)
    return with_common_options(group)
