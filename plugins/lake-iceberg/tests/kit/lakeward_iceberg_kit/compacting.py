"""Upkeep of the suites' table as a service does it: planned, worked on, committed, and cleaned up after a crash."""

from __future__ import annotations

import itertools
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

from lakeward.model.identity import UPKEEP, RoundId
from lakeward.model.results import CommitIds
from lakeward.model.upkeep import UpkeepCommit, UpkeepOutcome
from lakeward_lake_iceberg.commit import SnapshotBuilder
from lakeward_lake_iceberg.manifests import ManifestSet
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_lake_iceberg.positions import PATH_ID, SCHEMA
from lakeward_lake_iceberg.storage import Storage, local_path
from lakeward_testing.lake_tables import PATH, head_of, incarnation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest
    from pyiceberg.table import Table

    from lakeward.model.upkeep import UpkeepPlan, UpkeepResult
    from lakeward_lake_iceberg.lake import IcebergLake

_NUMBERS = itertools.count(1)
_MOST = 20


class Job:
    """One job of upkeep. `ids` are those of its commit."""

    def __init__(self, lake: IcebergLake, most: int = 4) -> None:
        """Plan it."""
        self._lake = lake
        self.upkeep_id = RoundId(incarnation(), 7, UPKEEP, next(_NUMBERS))
        self.plan: UpkeepPlan | None = lake.plan_upkeep(PATH, self.upkeep_id, most)
        self.results: tuple[UpkeepResult, ...] = ()
        self.ids: CommitIds | None = None

    def work(self) -> Job:
        """Do its tasks."""
        assert self.plan is not None
        self.results = tuple(IcebergLakePlugin().upkeep(task, 0, _go_on) for task in self.plan.tasks)
        return self

    def commit(self) -> UpkeepOutcome:
        """Commit what its tasks have done, on the head."""
        assert self.plan is not None
        self.ids, base = self._lake.new_ids(PATH), head_of(self._lake).snapshot_id
        commit = UpkeepCommit(PATH, self.upkeep_id, self.ids, base, self.plan.tasks, self.results)
        return self._lake.commit_upkeep(commit)

    def clean_up(self, lake: IcebergLake) -> None:
        """Delete what it has left, in a start after it."""
        found = lake.list_prefix(PATH, lake.file_prefix(PATH, self.upkeep_id))
        found += () if self.ids is None else lake.commit_leftovers(PATH, self.ids)
        lake.delete(frozenset(found) - lake.referenced(PATH, found))


def compact(lake: IcebergLake) -> int:
    """Do what is due, until nothing is; return how many commits that took."""
    for number in range(_MOST):
        job = Job(lake)
        if job.plan is None:
            return number
        assert job.work().commit() is UpkeepOutcome.LANDED
    message = f"upkeep is due again after {_MOST} commits"
    raise AssertionError(message)


def delete_rows(table: Table, positions: Sequence[tuple[str, int]]) -> None:
    """Commit one file of position deletes of any data files, as another engine does."""
    path = f"{table.location()}/data/{uuid4()}-deletes.parquet"
    paths, rows = zip(*sorted(positions), strict=True)
    pq.write_table(pa.table([paths, rows], schema=SCHEMA), local_path(path))
    bounds = {PATH_ID: min(paths).encode()}, {PATH_ID: max(paths).encode()}
    claims = dict(zip(("lower_bounds", "upper_bounds"), bounds, strict=True))
    append_deletes(table, path, DataFileContent.POSITION_DELETES, len(positions), **claims)


def append_deletes(table: Table, path: str, content: DataFileContent, rows: int, **claims: Any) -> None:  # noqa: ANN401
    """Commit a delete file, in an unpartitioned table or in the partition of the bucket 0."""
    spec, catalog = table.spec(), table.catalog
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*(0 for _ in spec.fields)),
        record_count=rows,
        file_size_in_bytes=Path(local_path(path)).stat().st_size,
        **claims,
    )
    file.spec_id = spec.spec_id
    ids = CommitIds(str(uuid4()), secrets.randbits(60))
    builder = SnapshotBuilder(table, ids, 0)
    added = ManifestSet(table.metadata, table.io, ids.snapshot_id, builder._new_manifest).added(
        [file], ManifestContent.DELETES
    )
    prepared = builder._finish([*builder._base(), *added], Operation.DELETE, {}, {}, {})
    catalog.commit_table(table, prepared.requirements, prepared.updates)


def die_after(steps: int, monkeypatch: pytest.MonkeyPatch, catalog: type) -> None:
    """Have this process "killed" after so many files that were opened or created, or commits that were sent."""
    left = iter(range(steps))

    def or_die(whole: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - of any type
            if next(left, None) is None:
                raise KeyboardInterrupt
            return whole(*given, **named)

        return call

    asked = ((Storage, "create"), (Storage, "open"), (PyArrowFile, "create"), (catalog, "commit_table"))
    for kind, name in asked:
        monkeypatch.setattr(kind, name, or_die(getattr(kind, name)))


def _go_on() -> None:
    """Let a task go on."""
