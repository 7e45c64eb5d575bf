"""What upkeep of one table is due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.model.status import UpkeepReport
    from lakeward.model.upkeep import FileCounts


@dataclass(frozen=True, slots=True)
class DueUpkeep:
    """What the next upkeep of a table would do; `next` says it in a word, or that it is nothing, and why.

    `tasks` replace `files` of `size_bytes` in all. `counts` is None where the lake does not count. `last` is the newest
    job since the service started, None where there was none or no service reports.
    """

    table: str
    next: str
    tasks: int = 0
    files: int = 0
    size_bytes: int = 0
    counts: FileCounts | None = None
    last: UpkeepReport | None = None
