"""The embedded source as a source plugin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, Source, SourceReader


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """The `[source]` section for `type = "embedded"`."""

    path: str = field(
        default="lakeward-store",
        metadata={"description": "the store's directory, made by `lakeward embedded create`", "path": True},
    )


class EmbeddedSourcePlugin:
    """See `lakeward.hooks.plugins.SourcePlugin`."""

    options = EmbeddedOptions

    def open(self, options: EmbeddedOptions, clock: Clock) -> Source:
        """See Protocol."""
        from lakeward.embedded.source import EmbeddedSource  # noqa: PLC0415 - only the driver needs the store
        from lakeward.embedded.store import EmbeddedStore  # noqa: PLC0415

        return EmbeddedSource(EmbeddedStore.open(options.path, clock=clock))

    def reader(self, task: bytes, table: TableSpec) -> SourceReader:
        """See Protocol."""
        from lakeward.embedded.reader import EmbeddedReader  # noqa: PLC0415 - the subtask imports this alone

        return EmbeddedReader.of_task(task, table)
