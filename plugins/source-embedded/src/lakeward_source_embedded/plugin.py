"""The embedded source as a source plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from lakeward.model.options import LocalPath, Meta, Options

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, Source, SourceReader


class EmbeddedOptions(Options, frozen=True, kw_only=True):
    """The `[source]` section for `type = "embedded"`."""

    path: Annotated[LocalPath, Meta(description="Directory of the store, made by `lakeward embedded create`.")] = (
        "lakeward-store"
    )


class EmbeddedSourcePlugin:
    """See `lakeward.hooks.plugins.SourcePlugin`."""

    conformance_level = "chaos"
    options = EmbeddedOptions

    def open(self, options: EmbeddedOptions, clock: Clock) -> Source:
        """See Protocol."""
        from lakeward_source_embedded.source import EmbeddedSource  # noqa: PLC0415 - only the driver needs the store
        from lakeward_source_embedded.store import EmbeddedStore  # noqa: PLC0415

        return EmbeddedSource(EmbeddedStore.open(options.path, clock=clock))

    def reader(self, task: bytes, table: TableSpec) -> SourceReader:
        """See Protocol."""
        from lakeward_source_embedded.reader import EmbeddedReader  # noqa: PLC0415 - the subtask imports this alone

        return EmbeddedReader.of_task(task, table)
