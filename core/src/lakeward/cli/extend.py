"""What plugins need for commands of their own: the common options and the same forms of output.

Publish a click command under the entry-point group `lakeward.command`; the entry point's name is the command's.
"""

from __future__ import annotations

from lakeward.arrow_alone import use_arrow_alone
from lakeward.cli.groups import Lazy, command_group
from lakeward.cli.invocation import Invocation, pass_invocation, take_duration, with_common_options
from lakeward.cli.output import Columns
from lakeward.observe.format import count, seconds

__all__ = [
    "Columns",
    "Invocation",
    "Lazy",
    "command_group",
    "count",
    "pass_invocation",
    "seconds",
    "take_duration",
    "use_arrow_alone",
    "with_common_options",
]
