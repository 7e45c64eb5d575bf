"""Lakes with points around a commit, of Iceberg around its very send, and in the writers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from lakeward_faulty.points import ArmedError, reached
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.results import CommitOutcome, CommitRequest, LakeFile, LakeHead
    from lakeward.model.splits import Split
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.model.upkeep import UpkeepCommit, UpkeepOutcome, UpkeepPlan, UpkeepResult, UpkeepTask
    from lakeward.ports import Clock, LakeWriter, Partitioner, SourceBatch

_WRITTEN = 2
"""Batches of a split after which it counts as in the middle of writing."""


class FaultyLake:
    """Hands everything to a lake."""

    def __init__(self, inner: Any) -> None:  # noqa: ANN401 - a lake of any type
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        return getattr(self._inner, name)

    def stamp(self, path: TablePath, incarnation: Incarnation) -> LakeHead:
        head: LakeHead = self._inner.stamp(path, incarnation)
        reached(f"after-stamp.{path.table}")
        return head

    def commit(self, request: CommitRequest) -> CommitOutcome:
        reached(f"before-lake-commit.{request.path.table}")
        outcome: CommitOutcome = self._inner.commit(request)
        reached(f"after-lake-commit.{request.path.table}")
        return outcome


class UpkeptLake(FaultyLake):
    """Has points around the steps of upkeep that the driver does."""

    def plan_upkeep(self, path: TablePath, upkeep_id: RoundId, most: int) -> UpkeepPlan | None:
        plan: UpkeepPlan | None = self._inner.plan_upkeep(path, upkeep_id, most)
        if plan is not None:
            reached(f"after-upkeep-plan.{path.table}")
        return plan

    def commit_upkeep(self, commit: UpkeepCommit) -> UpkeepOutcome:
        reached(f"before-upkeep-commit.{commit.path.table}")
        outcome: UpkeepOutcome = self._inner.commit_upkeep(commit)
        reached(f"after-upkeep-commit.{commit.path.table}")
        return outcome


def _lossy(send: Callable[..., Any]) -> Callable[..., Any]:
    """Stand between the fence check and the catalog: `send.<table>` is reached with a data commit only."""

    def commit_table(table: Any, requirements: Any, updates: Any) -> Any:  # noqa: ANN401 - pyiceberg's own
        summaries = [update.snapshot.summary for update in updates if hasattr(update, "snapshot")]
        if not any("fluss-offsets" in summary.additional_properties for summary in summaries):
            return send(table, requirements, updates)
        match reached(f"send.{table.name()[-1]}"):
            case "lose-request":
                message = "the connection broke before the request was sent"
                raise ArmedError(message)
            case "lose-answer":
                send(table, requirements, updates)
                message = "the connection broke before the answer came"
                raise ArmedError(message)
            case "deliver-late":
                threading.Thread(target=_send_late, args=(send, table, requirements, updates), daemon=True).start()
                message = "the connection broke, the request is still on its way"
                raise ArmedError(message)
            case _:
                return send(table, requirements, updates)

    return commit_table


def _send_late(send: Callable[..., Any], table: Any, requirements: Any, updates: Any) -> None:  # noqa: ANN401
    reached(f"late.{table.name()[-1]}")
    try:
        send(table, requirements, updates)
    except Exception as refused:  # noqa: BLE001 - said to the test, whatever it is
        reached(f"late-refused.{table.name()[-1]}")
        del refused
    else:
        reached(f"late-landed.{table.name()[-1]}")


class FaultyWriter:
    """Hands everything to a writer of a lake."""

    def __init__(self, inner: LakeWriter, table: TableSpec) -> None:
        self._inner = inner
        self._at = table.path.table
        self._written = 0

    def write(self, batch: SourceBatch) -> None:
        self._inner.write(batch)
        self._written += 1
        reached(f"each-write.{self._at}")
        if self._written == _WRITTEN:
            reached(f"writing.{self._at}")

    @property
    def all_rows_flushed(self) -> bool:
        return self._inner.all_rows_flushed

    def roll(self) -> tuple[LakeFile, ...]:
        reached(f"before-roll.{self._at}")
        files = self._inner.roll()
        reached(f"after-roll.{self._at}")
        return files

    def close(self) -> tuple[LakeFile, ...]:
        files = self._inner.close()
        reached(f"after-close.{self._at}")
        return files

    def abort(self) -> None:
        self._inner.abort()

    @property
    def left_out(self) -> int:
        return self._inner.left_out

    @property
    def timings_s(self) -> dict[str, float]:
        return self._inner.timings_s


class FaultyPlugin:
    """Hands everything to the plugin of a lake."""

    inner: Any

    def open(self, options: Any, clock: Clock) -> FaultyLake:  # noqa: ANN401 - the options of the lake
        return FaultyLake(self.inner.open(options, clock))

    def writer(
        self, task: bytes, table: TableSpec, split: Split, attempt: int, progress: SplitProgress | None = None
    ) -> FaultyWriter:
        return FaultyWriter(self.inner.writer(task, table, split, attempt, progress), table)

    def partitioner(self, task: bytes, table: TableSpec) -> Partitioner:
        found: Partitioner = self.inner.partitioner(task, table)
        return found

    def partition_writer(  # noqa: PLR0917 - as the Protocol
        self,
        task: bytes,
        table: TableSpec,
        partition: bytes,
        name: str,
        attempt: int,
        before: tuple[LakeFile, ...],
        memory_bytes: int,
    ) -> FaultyWriter:
        inner = self.inner.partition_writer(task, table, partition, name, attempt, before, memory_bytes)
        return FaultyWriter(inner, table)


class UpkeptLakePlugin(FaultyPlugin):
    """The lake `iceberg-upkept`, whose tables are compacted; one table at a time has points in its tasks."""

    inner = IcebergLakePlugin()
    options = IcebergOptions

    def open(self, options: Any, clock: Clock) -> FaultyLake:  # noqa: ANN401 - as above
        return UpkeptLake(self.inner.open(options, clock))

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        reached("upkeep-task-begun")
        result = self.inner.upkeep(task, attempt, check)
        reached("upkeep-task-done")
        return result


class FaultyLakePlugin(FaultyPlugin):
    """The lake `iceberg-faulty`, whose catalog may lose answers."""

    inner = IcebergLakePlugin()
    options = IcebergOptions

    def open(self, options: Any, clock: Clock) -> FaultyLake:  # noqa: ANN401 - as above
        lake: Any = self.inner.open(options, clock)
        catalog = lake._client.catalog
        catalog.commit_table = _lossy(catalog.commit_table)
        return FaultyLake(lake)
