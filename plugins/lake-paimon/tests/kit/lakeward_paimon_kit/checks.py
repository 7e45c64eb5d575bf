"""What must be true of a Paimon warehouse whatever happened: asked of the files themselves."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.lake_offsets import OFFSETS, OFFSETS_FILE, unpack_offsets
from lakeward.model.tables import Change, TableBucket
from lakeward_paimon_kit.files_read import Listing, Shelf, newest_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from lakeward_paimon_kit.files_read import Entry, Found, Snapshot
    from lakeward_paimon_kit.source_tables import Row, SourceTable

Offsets = dict[TableBucket, int]
_KINDS = {Change.INSERT: 0, Change.UPDATE_BEFORE: 1, Change.UPDATE_AFTER: 2, Change.DELETE: 3}
_USER = "__fluss_lake_tiering"


@dataclass
class Known:
    """A snapshot that was seen, and is looked at no more but for the files that it names."""

    data: bytes
    snapshot: Snapshot
    offsets: Offsets | None
    """Up to where the table is with it; None where that cannot be told any more."""
    newest: Incarnation | None
    """The latest start whose stamp is in it or below it."""
    inode: int = 0
    """Of its file, which is whole from the beginning: another one is another file."""


@dataclass
class Story:
    """What was seen of one lake table, whatever its name. `foreign` are rows of somebody else, by snapshot."""

    table_id: int
    known: dict[int, Known] = field(default_factory=dict)
    foreign: dict[int, list[Row]] = field(default_factory=dict)
    rounds: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def reached(self) -> Offsets | None:
        """Up to where the table is, None where that cannot be told."""
        return self.known[max(self.known)].offsets if self.known else {}

    def below(self, number: int) -> Known | None:
        """Return what is known of the nearest snapshot below another one."""
        ids = [one for one in self.known if one < number]
        return self.known[max(ids)] if ids else None


class Checker:
    """Checks tables again and again. `prepared` are the offsets that the source stored, by their path."""

    def __init__(self, sources: Mapping[int, SourceTable], prepared: Mapping[str, Mapping[TableBucket, int]]) -> None:
        """Know no table yet."""
        self._sources = sources
        self._prepared = prepared
        self._shelf = Shelf()
        self.stories: dict[str, Story] = {}

    def story_at(self, folder: Path) -> Story | None:
        """Return what is known of the table in a folder, None where it has no owner yet."""
        path = folder / "_lakeward" / "table.json"
        if not path.is_file():
            return None
        owner = json.loads(path.read_bytes())
        return self.stories.setdefault(owner["uuid"], Story(owner["table_id"]))

    def check(self, folders: Iterable[Path], acknowledged: Mapping[RoundId, int]) -> None:
        """Check all tables.

        Args:
            folders: where they are.
            acknowledged: the snapshot in which a round's commit was said to have landed.
        """
        with_commits: set[int] = set()
        for folder in folders:
            story = self.story_at(folder)
            if story is None:
                continue
            self._check(folder, story)
            # A start that was paused may have created an old table once more: then one of them is empty.
            assert not (story.rounds and story.table_id in with_commits), (
                f"two tables of id {story.table_id} have commits"
            )
            with_commits |= {story.table_id} if story.rounds else set()
        landed = {key: number for story in self.stories.values() for key, number in story.rounds.items()}
        for round_id, number in acknowledged.items():
            found = landed.get((str(round_id.incarnation), round_id.name))
            assert found == number, f"round {round_id} was said to have landed as {number}, it is in {found}"

    def has_copy(self, folder: Path) -> bool:
        """Return whether there is a copy of the newest commit of ours, or no commit."""
        story = self.story_at(folder)
        numbers = () if story is None else story.rounds.values()
        return not numbers or (folder / "_lakeward" / f"commit-{max(numbers)}").is_file()

    def orphans(self, folder: Path) -> set[str]:
        """Return the files of a table that nothing needs, as paths within its folder."""
        listing = Listing(folder)
        needed = {"table.json", "LATEST", "EARLIEST"} | _newest_stamp(listing.paths)
        for data in self._retained(listing):
            snapshot = self._shelf.snapshot(listing, data)
            needed |= snapshot.names
        copies = [name for name in listing.paths if name.startswith("commit-")]
        for name in copies[:1]:  # of our newest commit alone; its offsets outlive it
            said = json.loads((listing.folder / listing.paths[name]).read_bytes())
            needed |= {name, (said.get("properties") or {}).get(OFFSETS_FILE, "")}
        earliest = listing.hint("EARLIEST") or 0
        late = {listing.paths[f"snapshot-{number}"] for number in listing.snapshots if number < earliest}
        return late | {path for name, path in listing.paths.items() if name not in needed and not _KEPT.fullmatch(path)}

    def _retained(self, listing: Listing) -> Iterator[bytes]:
        for number in listing.snapshots:
            if number < (listing.hint("EARLIEST") or 0):
                continue
            yield (listing.folder / "snapshot" / f"snapshot-{number}").read_bytes()
        for tag in listing.tags:
            yield (listing.folder / "tag" / tag).read_bytes()

    def _check(self, folder: Path, story: Story) -> None:
        listing = Listing(folder)
        self._check_ids(listing)
        earliest = listing.hint("EARLIEST") or 0
        for number in listing.snapshots:
            path = folder / "snapshot" / f"snapshot-{number}"
            if number < earliest and number in story.known and story.known[number].data != path.read_bytes():
                continue  # its number was expired, and it came late: the next expiry deletes it
            known, status = story.known.get(number), path.stat()
            if known is None:
                known = story.known[number] = self._look(listing, story, number, path.read_bytes())
            elif known.inode != status.st_ino:
                assert known.data == path.read_bytes(), f"snapshot {number} was overwritten"
            known.inode = status.st_ino
            self._check_there(listing, known.snapshot, f"snapshot {number}")
        for tag in listing.tags:
            data = (folder / "tag" / tag).read_bytes()
            self._check_there(listing, self._shelf.snapshot(listing, data), f"tag {tag}", changelog=False)

    def _check_ids(self, listing: Listing) -> None:
        """Check that numbers have no gap from the first one on that readers look for, and that hints lead to them."""
        ids = listing.snapshots
        if not ids:
            return
        latest, earliest = listing.hint("LATEST"), listing.hint("EARLIEST")
        assert latest is None or latest <= ids[-1], f"LATEST is {latest}, the head {ids[-1]}"
        assert earliest is None or earliest <= ids[-1], f"EARLIEST is {earliest}, the head {ids[-1]}"
        seen = [number for number in ids if number >= (earliest or 0)]
        assert seen == list(range(seen[0], ids[-1] + 1)), f"snapshots {ids} have a gap from {earliest} on"

    def _check_there(self, listing: Listing, snapshot: Snapshot, what: str, *, changelog: bool = True) -> None:
        """Check that each file that a snapshot names is there; of a tag, changes need not be."""
        gone = {name for name in snapshot.names if name not in listing.paths}
        if not changelog:
            gone -= {one.name for one in snapshot.changelog}
        assert not gone, f"{what} names {sorted(gone)[:3]}, which {'is' if len(gone) == 1 else 'are'} gone"

    def _look(self, listing: Listing, story: Story, number: int, data: bytes) -> Known:
        """Check a snapshot that was not seen before."""
        where = f"snapshot {number}"
        snapshot = self._shelf.snapshot(listing, data)
        self._check_there(listing, snapshot, where)
        assert snapshot.said["id"] == number, f"{where} says that it is {snapshot.said['id']}"
        below = story.below(number)
        offsets = self._offsets(listing, snapshot)
        source = self._sources[story.table_id]
        self._check_who(story, where, snapshot, below, offsets)
        if below is not None:
            assert snapshot.said["timeMillis"] >= below.snapshot.said["timeMillis"], f"{where} is of an earlier time"
        self._check_counts(snapshot, where)
        before = {} if number == 1 else story.known[number - 1].offsets if number - 1 in story.known else None
        if offsets is not None and before is not None:
            for bucket, offset in before.items():
                assert offsets.get(bucket, 0) >= offset, f"{where}: offsets went back from {before} to {offsets}"
            self._check_changes(listing, source, snapshot, (before, offsets))
        offsets = before if offsets is None else offsets
        if offsets is not None:
            self._check_rows(listing, story, number, snapshot, offsets)
        said = snapshot.properties.get("lakeward.incarnation")
        stamps = [Incarnation.parse(said)] if said else []
        stamps += [below.newest] if below is not None and below.newest is not None else []
        newest = max(stamps, key=lambda one: one.started_ms, default=None)
        return Known(data, snapshot, offsets, newest)

    def _offsets(self, listing: Listing, snapshot: Snapshot) -> Offsets | None:
        said = snapshot.properties
        if OFFSETS in said:
            return unpack_offsets(said[OFFSETS], "a test")
        if OFFSETS_FILE in said:
            path = listing.folder / "_lakeward" / said[OFFSETS_FILE]
            assert path.is_file(), f"{said[OFFSETS_FILE]} is gone"
            return unpack_offsets(path.read_bytes(), "a test")
        return None

    def _check_who(
        self, story: Story, where: str, snapshot: Snapshot, below: Known | None, offsets: Offsets | None
    ) -> None:
        """Check that no earlier start's commit comes after a later one's, and each round's once."""
        said = snapshot.properties
        text = said.get("lakeward.incarnation")
        if text is None:
            return
        who = Incarnation.parse(text)
        if below is not None and below.newest is not None:
            assert not below.newest.succeeds(who), f"{where} is of the start {who}, which {below.newest} has overtaken"
        if offsets is None:
            return
        key = (text, said["lakeward.round"])
        assert key not in story.rounds, f"{where} and {story.rounds[key]} are both of round {key}"
        story.rounds[key] = snapshot.said["id"]
        if not self._sources[story.table_id].shape.is_mirror:
            assert snapshot.said["commitUser"] == _USER, f"{where} is of user {snapshot.said['commitUser']}"
            assert dict(self._prepared[said["fluss-offsets"]]) == offsets, f"{where}: Fluss has other offsets"

    def _check_counts(self, snapshot: Snapshot, where: str) -> None:
        said = snapshot.said
        rows = sum(one.rows for one in snapshot.live)
        assert said["totalRecordCount"] == rows, f"{where}: {said['totalRecordCount']} rows said, its files have {rows}"
        changes = sum(one.rows for one in snapshot.changelog)
        assert (said.get("changelogRecordCount") or 0) == changes, f"{where}: {changes} changes"

    def _check_rows(
        self, listing: Listing, story: Story, number: int, snapshot: Snapshot, offsets: Mapping[TableBucket, int]
    ) -> None:
        """Check that the rows are those of the offsets and of somebody else, each once, where they belong."""
        source = self._sources[story.table_id]
        found: list[Row] = []
        for place, files in _by_place(snapshot.live).items():
            rows = [(one, row) for one in files for row in self._shelf.rows(listing, one)]
            for one, row in rows:
                self._check_place(listing, source, one, row)
            if source.shape.is_key:
                in_order = sorted((row for _, row in rows), key=lambda one: one.sequence)
                _check_order(in_order, f"snapshot {number}, bucket {place}", by_key=True)
                found += newest_rows(in_order, lambda row: row.id)
            else:
                _check_apart(files)
                in_order = sorted((row for _, row in rows), key=lambda one: one.sequence)
                _check_order(in_order, f"snapshot {number}, bucket {place}", by_key=False)
                found += [one.row for one in in_order]
        foreign = [row for at, rows in story.foreign.items() if at <= number for row in rows]
        expected = Counter([*source.rows_at(offsets), *foreign])
        counted = Counter(found)
        assert counted == expected, (
            f"snapshot {number} at {_short(offsets)}: rows too many {sorted((counted - expected).elements())[:5]}, "
            f"missing {sorted((expected - counted).elements())[:5]}, {len(found)} in all"
        )

    def _check_place(self, listing: Listing, source: SourceTable, entry: Entry, found: Found) -> None:
        """Check that a row lies in the folder of its partition and bucket, as the manifest says too."""
        path, row = listing.paths[entry.name], found.row
        folder = path.rpartition("/")[0]
        partitions = source.shape.partitions
        if partitions in {"source", "region", "truncate(1, region)"}:
            value = row.region[:1] if partitions.startswith("truncate") else row.region
            assert value.encode() in entry.partition, f"{path} has {row}, its manifest says {entry.partition!r}"
            assert f"={value}/" in path, f"{path} has {row}"
        assert folder.endswith(f"bucket-{entry.bucket}"), f"{path} is said to be in bucket {entry.bucket}"
        if row.name.startswith("f"):
            return
        bucket = row.id % source.shape.buckets
        if source.shape.kind != "log" and not source.shape.is_own:
            assert entry.bucket == bucket, f"{path} has {row} of bucket {bucket}"
        if found.offset is not None:
            # A delete has the row as it was, and its own offset.
            same = found.kind in {1, 3} or found.offset == _offset_of(row)
            assert same, f"{path}: {row} is said to have offset {found.offset}"
            assert found.bucket == bucket, f"{path}: {row} is said to have bucket {found.bucket}"

    def _check_changes(
        self, listing: Listing, source: SourceTable, snapshot: Snapshot, between: tuple[Offsets, Offsets]
    ) -> None:
        """Check that the changelog has the source's changes between two offsets of each bucket, in their order."""
        number, shape = snapshot.said["id"], source.shape
        if not shape.has_changelog:
            assert not snapshot.changelog, f"snapshot {number} has changelog files"
            return
        found: dict[tuple[bytes, int, str], list[Found]] = defaultdict(list)
        for one in snapshot.changelog:
            for row in self._shelf.rows(listing, one):
                self._check_place(listing, source, one, row)
                region = row.row.region if shape.partitions == "source" else ""
                found[one.partition, row.row.id % shape.buckets, region].append(row)
        expected = _changes(source, *between)
        for (partition, bucket, region), rows in found.items():
            changes = [(one.row, one.kind) for one in sorted(rows, key=lambda one: one.sequence)]
            wanted = expected[bucket, region]
            if shape.is_own:
                inside = {one.row for one in rows}
                wanted = [pair for pair in wanted if pair[0] in inside]
            assert changes == wanted, f"snapshot {number}, {partition!r}: changes {changes[:4]}, expected {wanted[:4]}"
        total = sum(map(len, expected.values()))
        assert sum(map(len, found.values())) == total, f"snapshot {number}: expected {total} changes"


_KEPT = re.compile(r"schema/schema-\d+|snapshot/snapshot-\d+|tag/tag-.+")


def _newest_stamp(names: Iterable[str]) -> set[str]:
    stamps = [name for name in names if name.startswith("stamp-")]
    return set(sorted(stamps, key=lambda name: Incarnation.parse(name.removeprefix("stamp-")).started_ms)[-1:])


def _changes(source: SourceTable, before: Offsets, after: Offsets) -> dict[tuple[int, str], list[tuple[Row, int]]]:
    """Return the changes of each bucket and partition of the source, with Paimon's kinds."""
    found: dict[tuple[int, str], list[tuple[Row, int]]] = {}
    for where, stop in after.items():
        log, start = source.logs[where], before.get(where, 0)
        kinds = [_KINDS[change] for change in log.changes[start:stop]]
        if source.shape.moves_keys and source.shape.is_own:
            kinds = [_KINDS[Change.DELETE] if kind == _KINDS[Change.UPDATE_BEFORE] else kind for kind in kinds]
        found[where.bucket, log.region] = list(zip(log.rows[start:stop], kinds, strict=True))
    return found


def _by_place(files: Iterable[Entry]) -> dict[tuple[bytes, int], list[Entry]]:
    found: dict[tuple[bytes, int], list[Entry]] = defaultdict(list)
    for one in files:
        found[one.partition, one.bucket].append(one)
    return found


def _offset_of(row: Row) -> int:
    return int(row.name.partition(":")[2])


def _check_order(rows: Iterable[Found], where: str, *, by_key: bool) -> None:
    """Check that rows of a key, or of a bucket of the source, come in the order of their offsets."""
    last: dict[object, int] = {}
    for one in rows:
        if one.row.name.startswith("f") or one.kind in {1, 3}:
            continue
        key = one.row.id if by_key else one.row.name.partition(":")[0]
        offset = _offset_of(one.row)
        assert last.get(key, -1) < offset, f"{where}: offset {offset} of {key} comes after {last.get(key)}"
        last[key] = offset


def _check_apart(files: Iterable[Entry]) -> None:
    """Check that the sequence numbers of the files of a log table's bucket do not overlap."""
    ordered = sorted(files, key=lambda one: one.least)
    for one, other in pairwise(ordered):
        assert one.greatest < other.least, f"{one.name} and {other.name} have sequence numbers in common"


def _short(offsets: Mapping[TableBucket, int]) -> str:
    return ", ".join(f"{bucket}: {offset}" for bucket, offset in offsets.items())
