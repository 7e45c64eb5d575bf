"""Plans the compaction of a key table as tasks, and builds the change that replaces files by what those have merged."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakeward.errors import FencedError
from lakeward.model.upkeep import UpkeepPlan, UpkeepTask
from lakeward_lake_paimon.binary_row import decode_row
from lakeward_lake_paimon.commit import COMPACT, Change
from lakeward_lake_paimon.compaction import due_merges, still_fits
from lakeward_lake_paimon.files import paths_of, round_token
from lakeward_lake_paimon.manifests import ADD, Entry
from lakeward_lake_paimon.merge_task import MergeFile, MergeTask, pack_task, unpack_files, unpack_task
from lakeward_lake_paimon.offsets import INCARNATION, OWN_USER, TABLE_ID
from lakeward_lake_paimon.table_schema import read_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.upkeep import UpkeepCommit
    from lakeward_lake_paimon.compaction import Bucket, Merge
    from lakeward_lake_paimon.manifests import DataFile, FileKey
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.table import Table


def plan_compaction(
    table: Table, upkeep_id: RoundId, most: int, options: PaimonOptions, storage: Mapping[str, str]
) -> UpkeepPlan | None:
    """Return what is due, one bucket a task; None where nothing is. `storage` are the properties of the file system."""
    due = due_merges(table.schema, table.manifests.live(table.latest).values())[:most]
    tasks = tuple(
        UpkeepTask(
            number, len(merge.entries), merge.size_bytes, pack_task(_task(table, merge, upkeep_id, options, storage))
        )
        for number, merge in enumerate(due)
    )
    return UpkeepPlan(table.path, upkeep_id, "compaction", tasks) if tasks else None


def compaction_change(table: Table, commit: UpkeepCommit) -> Change | None:
    """Return what a commit changes; None where files are gone, or others are in the way.

    It carries the stamp again: a round that runs sees so that its rows are newer.
    """
    live: dict[Bucket, dict[FileKey, Entry]] = defaultdict(dict)
    for key, entry in table.manifests.live(table.latest).items():
        live[entry.partition, entry.bucket][key] = entry
    entries: list[Entry] = []
    for task, result in zip(commit.tasks, commit.results, strict=True):
        merge = unpack_task(task.detail)
        found = _replaced(live[merge.partition, merge.bucket], merge, unpack_files(result.detail))
        if found is None:
            return None
        entries += found
    who = commit.upkeep_id
    properties = {INCARNATION: str(who.incarnation), TABLE_ID: str(who.table_id)}
    return Change(COMPACT, OWN_USER, properties, entries)


def check_owner(table: Table, table_id: int, incarnation: Incarnation | None) -> None:
    """Check whose table it is, and whose stamp is on the head; None: anybody's may be.

    Raises:
        FencedError: one of them is another one now.
    """
    owner = None if table.owner is None else table.owner.table_id
    expected = table.stamp if incarnation is None else incarnation
    if (owner, table.stamp) != (table_id, expected):
        message = (
            f"{table.path}: expected table id {table_id} with the stamp {expected} on the head, "
            f"found {owner} with {table.stamp}"
        )
        raise FencedError(message, by="" if table.stamp is None else str(table.stamp))


def _task(
    table: Table, merge: Merge, upkeep_id: RoundId, options: PaimonOptions, storage: Mapping[str, str]
) -> MergeTask:
    schema, first = table.schema, merge.entries[0]
    others = sorted({entry.file.schema_id for entry in merge.entries} - {schema.id})
    schemas = [schema, *(read_schema(table.storage, table.location, number) for number in others)]
    # A key that was widened since is in the manifest as it was when the file was written.
    kinds = {one.id: [field.kind for field in one.named(one.key_columns)] for one in schemas}
    runs = [
        sorted(run, key=lambda entry: decode_row(entry.file.min_key, kinds[entry.file.schema_id])) for run in merge.runs
    ]
    return MergeTask(
        location=table.location,
        schemas=tuple(one.to_bytes() for one in schemas),
        partition=first.partition,
        bucket=first.bucket,
        total_buckets=first.total_buckets,
        runs=tuple(tuple(_merge_file(table, entry) for entry in run) for run in runs),
        level=merge.level,
        drops_deletes=merge.drops_deletes,
        token=round_token(upkeep_id),
        target_size_bytes=options.target_file_size_bytes,
        compression=options.compression,
        compression_level=options.compression_level,
        storage=dict(storage),
    )


def _merge_file(table: Table, entry: Entry) -> MergeFile:
    return MergeFile(next(paths_of(table, entry)), entry.file.schema_id, entry.file.level, entry.file.name)


def _replaced(place: Mapping[FileKey, Entry], merge: MergeTask, files: Sequence[DataFile]) -> list[Entry] | None:
    """Return the entries that replace a bucket's files by merged ones; None where those are gone or do not fit."""
    keys = [(merge.partition, merge.bucket, file.level, file.name) for file in merge.files]
    others = [entry for key, entry in place.items() if key not in frozenset(keys)]
    if any(key not in place for key in keys) or not still_fits(merge.level, others, drops_deletes=merge.drops_deletes):
        return None
    added = [Entry(ADD, merge.partition, merge.bucket, merge.total_buckets, file) for file in files]
    return [*(place[key].taken_away() for key in keys), *added]
