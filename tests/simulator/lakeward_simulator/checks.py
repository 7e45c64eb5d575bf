"""What must hold: after each commit, and when everything has come to rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.machines.splits.enumeration import by_bucket
from lakeward.machines.transport.channel import ChannelKey
from lakeward.model.dead_letters import owner_of
from lakeward.model.events import CheckpointComplete, SplitFinished
from lakeward.model.exchange import complete
from lakeward.model.splits import LogSplit
from lakeward.storage.checkpoint_layout import ABANDONED, METADATA, parse_folder, place, start_of
from lakeward.storage.segments import parse_segment
from lakeward.subtask.exchange.exchange_work import MARKER_MISSING
from lakeward_simulator.cuts import wrong_in_cut, wrong_in_lake
from lakeward_simulator.lake import named_by
from lakeward_simulator.letters import letters_of, wrong_beside_letters, wrong_letters
from lakeward_simulator.rescaling import fits, wrongly_divided
from lakeward_simulator.scheduler import FENCE_S
from lakeward_simulator.subtask import SimTask

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lakeward.coordinator.rounds.checkpoints import CompletedCheckpoint
    from lakeward.coordinator.rounds.job import Job
    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.model.events import AckCheckpoint, DeclineCheckpoint, Envelope
    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.jobs import JobSpec
    from lakeward.model.results import CommitRequest
    from lakeward.model.tables import KvSnapshot, TableBucket, TablePath
    from lakeward_simulator.coordinator import Coordinator
    from lakeward_simulator.lake import LakeTable
    from lakeward_simulator.loop import SimLoop
    from lakeward_simulator.records import Row
    from lakeward_simulator.scheduler import Process
    from lakeward_simulator.source import SimTable
    from lakeward_simulator.world import World


ORPHAN = "orphan file:"
"""How the sentence about a file begins that nothing references."""
_READING = frozenset({"launch", "read", "close", "cut", "drain", "collect", "store"})


class Checks:
    """Collects what does not hold; the first sentence is what a person should look at."""

    def __init__(self, world: World) -> None:
        """Start with nothing wrong."""
        self._world = world
        self.failures: list[str] = []
        self.snapshots: dict[tuple[TableBucket, int], int] = {}
        """The log offset of each KV snapshot that ever was."""
        self._counted: set[tuple[ChannelKey, str]] = set()
        """Finishes that counted while their attempt was the newest; said again later, they still do."""
        self._checkpoints: dict[tuple[str, int], CompletedCheckpoint] = {}
        """The newest checkpoint of each service and table that completed."""
        self._recovering: set[tuple[int, int]] = set()
        """Table and checkpoint, where a subtask that had not restored everything has stored its part."""
        self.recovered = 0
        """Checkpoints that completed, of which a part was stored during a recovery."""
        self._fenced: set[tuple[TablePath, RoundId, int]] = set()
        """Commits that were fenced while their own round's commit was in the lake, and that nobody has looked for."""

    def fail(self, sentence: str) -> None:
        """Note that something does not hold."""
        if sentence not in self.failures:
            self.failures.append(sentence)
            self._world.scheduler.halted = True
            self._world.story.note("CHECK", sentence)

    # --- at each checkpoint, and whenever a lease lets a snapshot go -----------------------------------------------

    def completed(self, done: CompletedCheckpoint) -> None:
        """A checkpoint has completed: what it has still to read is held until it is used, superseded or given up."""
        self._checkpoints[done.ref.service, done.ref.table_id] = done
        self.recovered += (done.ref.table_id, done.ref.number) in self._recovering
        source = self._world.source.every[done.ref.table_id]
        damaged = self._world.files.damaged
        lacks = any(row.name in damaged for state in done.state.exchange for row in state.segments())
        if not done.state.exchange or lacks or self._lost_files(done):
            return
        if (wrong := wrong_in_cut(self._world, source, done.state)) is not None:
            self.fail(f"checkpoint {done.ref}: {wrong}")

    def _lost_files(self, done: CompletedCheckpoint) -> bool:
        """Return whether a later start has deleted files of it before it completed; nobody goes on from it then."""
        world = self._world
        table = world.lake.tables.get(done.state.round.path)
        stamp = None if table is None else table.stamp
        gone = any(file.path not in world.lake.files for one in done.state.exchange for file in one.files)
        gone |= any(path not in world.lake.files for path in done.state.letters())
        gone |= any(world.files.content(row.name) is None for one in done.state.exchange for row in one.segments())
        return gone and stamp is not None and stamp.succeeds(start_of(done.ref))

    def let_go(self, lease_id: str, bucket: TableBucket, snapshot_id: int) -> None:
        """No lease names a snapshot any more: no checkpoint that somebody may go on from has to read it."""
        for (service, table_id), done in self._checkpoints.items():
            needed = {(one.bucket, one.snapshot_id) for one in done.state.enumeration().snapshots}
            if (bucket, snapshot_id) in needed and not self._is_over(service, table_id, done):
                self.fail(
                    f"checkpoint {done.ref} has still to read snapshot {snapshot_id} of {bucket}, {lease_id} let go"
                )

    def _is_over(self, service: str, table_id: int, done: CompletedCheckpoint) -> bool:
        """Say whether a checkpoint was used, superseded or given up."""
        world, was = self._world, done.state.round
        source = world.source.tables_by_path.get(was.path)
        lake = world.lake.tables.get(was.path)
        if source is None or lake is None or source.spec.table_id != table_id:
            return True
        if lake.stamp is None or lake.stamp.service != service:
            return True
        deleted = place(done.ref, METADATA) not in world.files or self._is_superseded(done.ref)
        starts = world.of(service)
        given_up = any(one.has_given_up(done.ref) for one in starts if not one.loop.frozen)
        used = _is_used(lake, done)
        return deleted or used or given_up or any(one.final and not one.over for one in starts)

    def _is_superseded(self, ref: CheckpointRef) -> bool:
        """Say whether a later checkpoint of the table is in the store; nobody need have lived to hear that it is."""
        files = self._world.files
        written = [*files.ever]
        for name in written[written.index(place(ref, METADATA)) + 1 :]:
            folder, _, last = name.rpartition("/")
            other = parse_folder(folder) if last == METADATA and name in files else None
            if other is None or (other.service, other.table_id) != (ref.service, ref.table_id):
                continue
            if place(other, ABANDONED) not in files and not start_of(ref).succeeds(start_of(other)):
                return True
        return False

    # --- at each commit ------------------------------------------------------------------------------------------

    def landed(self, table: LakeTable, request: CommitRequest) -> None:
        """A commit is in the lake: it holds each record below its offsets exactly once, in order, and no other."""
        source = self._world.source.every[table.table_id]
        self._goes_on(table, request)
        rows = self._rows(table)
        self._buckets(source, rows, request)
        strange = rows.keys() - source.logs.keys()
        if strange:
            self.fail(f"{request.path}: rows of buckets that it does not have: {strange}")
        for wrong in self._wrongly_divided(source, table, rows):
            self.fail(f"{request.path}: {wrong}")
        if source.route is not None:
            for wrong in wrong_in_lake(self._world, table, source, source.route):
                self.fail(f"{request.path}: {wrong}")

    def merged(self, table: LakeTable) -> None:
        """Files of a table were merged: it holds the rows that it held before."""
        newest = table.newest
        if newest is None or newest.request is None:
            return
        source = self._world.source.every[table.table_id]
        self._buckets(source, self._rows(table), newest.request)

    def letters_landed(self, table: LakeTable, path: TablePath, owner: TablePath) -> None:
        """Dead letters are in the lake: rows that do not fit, each once, and of a commit of their table."""
        self._rows(table)
        for wrong in wrong_letters(self._world, table, path, owner):
            self.fail(wrong)

    def launching_upkeep(self, loop: SimLoop, tasks: int) -> None:
        """A job of upkeep is being launched: by a start that knows of no successor, in slots that no round has."""
        who = self._world.coordinator_of(loop)
        if who is None:
            return
        if who.is_overtaken:
            self.fail(f"{loop.name}: launches upkeep, and knows that it is overtaken")
        running = sum(one.occupied for one in who.jobs.upkeep)
        launched = sum(one.subtasks for one in who.tables.rounds)
        if launched + running + tasks > max(who.jobs.slots, who.jobs.most_slots):
            self.fail(f"{loop.name}: {tasks} tasks of upkeep beside {launched} of rounds and {running} of other upkeep")

    def _wrongly_divided(
        self, source: SimTable, table: LakeTable, rows: Mapping[TableBucket, Iterable[Row]]
    ) -> Iterable[str]:
        """Return which rows the lake's readers do not find where they look for them; all others where counts stay."""
        if not self._world.rescaling.changed:
            return ()
        starts = {number: offset for (_, number), offset in self.snapshots.items()}
        return wrongly_divided(source, table, (row for some in rows.values() for row in some), starts)

    def _goes_on(self, table: LakeTable, request: CommitRequest) -> None:
        """No offset of a commit is behind that of the one before: whoever starts from there would read rows again."""
        commits = [one.request for one in table.log if one.request is not None]
        before = commits[-2].offsets if len(commits) > 1 else {}
        for bucket, offset in before.items():
            if request.offsets.get(bucket, -1) < offset:
                now = request.offsets.get(bucket)
                self.fail(f"{request.round_id}, step {request.step}: bucket {bucket} goes back from {offset} to {now}")

    def fenced(self, table: LakeTable, request: CommitRequest) -> None:
        """A commit is refused: where an earlier try of it has landed, that is what refuses it."""
        landed = [one.request for one in table.log if one.request is not None]
        if any((one.round_id, one.step) == (request.round_id, request.step) for one in landed):
            self._fenced.add((request.path, request.round_id, request.step))

    def looking_for(self, path: TablePath, round_id: RoundId, step: int) -> None:
        """Somebody asks the lake whether a commit has landed."""
        self._fenced.discard((path, round_id, step))

    def opening(self, path: TablePath, incarnation: Incarnation) -> None:
        """A start opens a table for its next round: it knows by now what became of the one before."""
        for table, round_id, step in self._fenced:
            if table == path and round_id.incarnation == incarnation:
                self.fail(f"{round_id}: its own commit refused the next try of step {step}, nobody looked for it")

    def deleting(self, file: str) -> None:
        """A file is about to be deleted: no lake table may name it, and it is no later start's."""
        lake = self._world.lake
        self._later_starts(file, file.split("/")[-3])
        if any(file in table.named() for table in (*lake.tables.values(), *lake.aside)):
            self.fail(f"a committed file is deleted: {file}")
        for table, request in lake.may_land():
            if file in named_by(table, request):
                self.fail(f"a file is deleted that a commit names which may still land: {file}")

    # --- while it goes on ------------------------------------------------------------------------------------------

    def sending(self, request: CommitRequest) -> None:
        """A commit is being sent: by the round in work on its table, which was renewed within the fence time."""
        who = next((one for one in self._world.coordinators if one.loop is self._world.acting), None)
        if who is None:
            return
        table_id, now = request.table_id, self._world.scheduler.now
        renewed = next((one.renewed_at for one in who.rounds.tables if one.assignment.table_id == table_id), None)
        run = who.tables.round(table_id)
        in_work = run is not None and run.facts.round_id == request.round_id
        # A later round sends dead letters as well, while it opens the table: the stamp alone keeps others from it.
        # Its id is made of ours and the earlier one's, and may be that of a round of ours: step 0 tells them apart.
        of_earlier = owner_of(request.path) is not None and (not in_work or request.step == 0)
        if not of_earlier and (renewed is None or not in_work):
            self.fail(f"{who.loop.name}: sends a commit of {request.round_id}, which is not in work any more")
        elif not of_earlier and renewed is not None and now - renewed >= FENCE_S:
            self.fail(f"{who.loop.name}: sends a commit of {request.round_id}, renewed {now - renewed:.0f} s ago")
        for other in self._world.lake.on_their_way():
            if other.path == request.path and other.incarnation == who.incarnation:
                self.fail(f"{who.loop.name}: sends {request.round_id} while {other.round_id} is on its way")

    def launching(self, loop: SimLoop, spec: JobSpec) -> None:
        """A job is being launched, by a start that knows of no successor: the journal of its round is on disk."""
        if self._is_overtaken(loop):
            self.fail(f"{loop.name}: launches the job of {spec.round_name}, and knows that it is overtaken")
        start, _, round_name = spec.round_name.partition("/")
        service = loop.name.partition("#")[0]
        if spec.job_attempt == 1 and self._newest(service) is loop:
            name = f"{service}/{start}/{round_name}/journal"
            if name not in self._world.files:
                self.fail(f"{loop.name}: the job of {spec.round_name} is launched before its journal is written")
        if self._world.rescaling.changed:
            self._begins_at_the_start(loop, int(round_name.partition("-")[0]))

    def _begins_at_the_start(self, loop: SimLoop, table_id: int) -> None:
        """A bucket of which the lake has nothing is read from its first record on, or from a snapshot on."""
        coordinator = self._world.coordinator_of(loop)
        run = coordinator.tables.round(table_id) if coordinator is not None else None
        if run is None or run.facts.context is None:
            return
        enumeration = run.facts.context.enumeration
        for bucket, splits in by_bucket(enumeration.splits).items():
            first = splits[0]
            if bucket not in enumeration.offsets and isinstance(first, LogSplit) and first.start > 0:
                self.fail(f"{loop.name}: bucket {bucket} is new, and read from offset {first.start} on")

    def deploying(self, loop: SimLoop, subtask: str) -> None:
        """A subtask is told to begin: by a start that knows of no successor.

        What a closed gateway held back goes out when the job is cancelled: that one may be told of another split.
        """
        if self._is_overtaken(loop):
            self.fail(f"{loop.name}: deploys {subtask}, and knows that it is overtaken")

    def _is_overtaken(self, loop: SimLoop) -> bool:
        return any(one.loop is loop and one.is_overtaken for one in self._world.coordinators)

    def removing(self, name: str) -> None:
        """A file of the store, or a folder, is about to be deleted: it is no later start's."""
        self._later_starts(name, next(iter(name.split("/")[1:]), ""))

    def _later_starts(self, name: str, start: str) -> None:
        acting = self._world.acting
        who = next((one for one in self._world.coordinators if one.loop is acting), None)
        if who is None or start == str(who.incarnation):
            return
        owner = next((one for one in self._world.coordinators if str(one.incarnation) == start), None)
        if owner is not None and owner.incarnation.succeeds(who.incarnation):
            self.fail(f"{who.loop.name}: deletes {name}, which its successor {owner.loop.name} has made")

    def going_on(self, ref: CheckpointRef, there: Collection[str]) -> None:
        """A round goes on from a checkpoint: later ones of its epoch that were there are deleted, for they are wrong.

        One whose `_metadata` was torn as it was written never happened, and is none.

        Args:
            ref: the checkpoint.
            there: what the store held before anybody looked for it.
        """
        for name in there:
            other = parse_folder(name.removesuffix(f"/{METADATA}"))
            if other is None or name not in self._world.files or name not in self._world.files.ever:
                continue
            if replace(other, number=ref.number) == ref and other.number > ref.number:
                self.fail(f"a round goes on from checkpoint {ref}, although there is {other}")

    def journal_of(self, path: str) -> bool:
        """Say whether a journal names the round that a data file belongs to."""
        start, round_name = path.split("/")[-3:-1]
        service = start.rsplit("-", 2)[0]
        return f"{service}/{start}/{round_name}/journal" in self._world.files

    def unnamed(self, task: Process, path: str) -> None:
        """A living task writes a file that no journal names: fine only where a later start has swept."""
        newest = self._newest(task.name.partition("#")[0])
        if newest is not None and task.name.startswith(f"{newest.name}/"):
            self.fail(f"{task.name}: writes {path}, which no journal names")

    def finished(self, loop: SimLoop, envelope: Envelope) -> None:
        """A finish has arrived: it counts only if it is the newest attempt's."""
        job = self._job(loop, envelope)
        event = envelope.event
        if job is None or not isinstance(event, SplitFinished):
            return
        key = ChannelKey(envelope.round, envelope.job_attempt, envelope.subtask, envelope.task_attempt)
        newest = job.attempts.get(key.subtask)
        counts = job.progress.results.get(event.result.split_id) is event.result
        said = (key, event.result.split_id)
        if counts and newest is not None and newest.key == key:
            self._counted.add(said)
        elif counts and said not in self._counted:
            self.fail(f"a finish of {key}, which was replaced, counts: {event.result.split_id}")

    def acknowledging(self, who: Process, ack: AckCheckpoint) -> None:
        """A subtask says that its part is stored."""
        if isinstance(who, SimTask) and who.is_restoring:
            self._recovering.add((who.table_id, ack.checkpoint))
        end = f"/chk-{ack.checkpoint}/{ack.part.name}"
        if not any(name.endswith(end) for name in self._world.files.ever):
            self.fail(f"{who.name}: says {ack.part.name} of checkpoint {ack.checkpoint} is stored, and it never was")

    def declining(self, who: Process, declined: DeclineCheckpoint) -> None:
        """A subtask says that there is no part of a checkpoint: never because a recovery had no border for it."""
        if declined.reason == MARKER_MISSING:
            self.fail(f"{who.name}: a marker of checkpoint {declined.checkpoint} is missing")

    def completing(self, loop: SimLoop, envelope: Envelope) -> None:
        """A coordinator says that a checkpoint has completed."""
        job = self._job(loop, envelope)
        if job is None or not isinstance(envelope.event, CheckpointComplete):
            return
        ref = replace(job.plan.checkpoints.ref, number=envelope.event.checkpoint)
        if place(ref, METADATA) not in self._world.files.ever:
            self.fail(f"checkpoint {ref} is said to have completed before it was stored")

    def _job(self, loop: SimLoop, envelope: Envelope) -> Job | None:
        coordinator = self._world.coordinator_of(loop)
        found = None if coordinator is None else coordinator.tables.find_launch(envelope.round, envelope.job_attempt)
        return None if found is None else found.job

    def releasing(self, bucket: TableBucket, snapshot_id: int) -> None:
        """A snapshot is given up: no round in work may still have to read it should it go on from its checkpoint.

        The rounds of a start that knows of its successor are over, though some may not be put away yet.
        """
        who = next((one for one in self._world.running() if one.loop is self._world.acting), None)
        if who is not None and who.is_overtaken:
            return
        run = who.tables.round(bucket.table_id) if who is not None else None
        if who is None or run is None or run.job is None or who.step(bucket.table_id) not in _READING:
            return
        wanted = {(one.bucket, one.snapshot_id) for one in _snapshots(who, bucket.table_id)}
        whole = () if run.facts.newest is None else run.facts.newest.state.results().values()
        if (bucket, snapshot_id) in wanted and not any(result.bucket == bucket for result in whole):
            self.fail(f"{who.loop.name}: gives up the snapshot of {bucket} before a checkpoint holds its end")

    def _newest(self, service: str) -> SimLoop | None:
        return next((one.loop for one in reversed(self._world.coordinators) if one.service_name == service), None)

    def _rows(self, table: LakeTable) -> dict[TableBucket, list[Row]]:
        rows: dict[TableBucket, list[Row]] = {}
        seen: set[str] = set()
        for one in table.log:
            for file in one.request.files if one.request is not None else ():
                if file.path not in self._world.lake.files:
                    self.fail(f"a commit names a file that is not there: {file.path}")
                if file.path in seen:
                    self.fail(f"a file is committed twice: {file.path}")
                seen.add(file.path)
        for path in table.live():
            if path not in self._world.lake.files:
                self.fail(f"a snapshot names a file that is not there: {path}")
            for row in self._world.lake.files.get(path, ()):
                rows.setdefault(row.bucket, []).append(row)
        return rows

    def _buckets(self, source: SimTable, rows: Mapping[TableBucket, list[Row]], request: CommitRequest) -> None:
        """Check the rows of a table; where dead letters are kept, whether all are there is seen at rest."""
        if self._world.keeps_letters:
            for wrong in wrong_beside_letters(row for some in rows.values() for row in some):
                self.fail(f"{request.path}: {wrong}")
            return
        for bucket in source.logs:
            self._bucket(source, bucket, rows.get(bucket, []), request.offsets.get(bucket))

    def _bucket(self, source: SimTable, bucket: TableBucket, rows: list[Row], end: int | None) -> None:
        snapshots = {row.snapshot for row in rows if row.snapshot is not None}
        start = 0
        if len(snapshots) > 1:
            self.fail(f"bucket {bucket}: rows of several snapshots: {sorted(snapshots)}")
        for number in snapshots:
            start = self.snapshots[bucket, number]
            keys = [row.key for row in rows if row.snapshot == number]
            self._same(f"bucket {bucket}, snapshot {number}", keys, source.live_rows(bucket, start))
        offsets = [row.offset for row in rows if row.snapshot is None]
        self._same(f"bucket {bucket}, log", offsets, range(start, start if end is None else max(start, end)))
        order = [row.offset for row in rows]
        if source.route is None and source.spec.has_primary_key and order != sorted(order):
            self.fail(f"bucket {bucket}: changes are not in order: {order}")

    def _same(self, what: str, found: Iterable[int], expected: Iterable[int]) -> None:
        found, expected = sorted(found), sorted(expected)
        if found != expected:
            have, want = Counter(found), Counter(expected)
            twice = sorted(one for one, count in have.items() if count > 1)
            missing, strange = sorted((want - have).keys()), sorted((have - want).keys() - {*twice})
            self.fail(f"{what}: twice {twice}, missing {missing}, not expected {strange}")

    # --- at rest ---------------------------------------------------------------------------------------------------

    def caught_up(self) -> bool:
        """Say whether all records of all tables are in the lake, and the source knows it."""
        if self._world.source.to_come:
            return False
        refused = self.refused()
        if any(not self._fails_alone(table) for table in refused):
            return False
        for path, table in self._world.source.tables_by_path.items():
            if table in refused:
                continue
            lake = self._world.lake.tables.get(path)
            if lake is None or lake.table_id != table.spec.table_id:
                if any(table.logs.values()):
                    return False
                continue
            newest = lake.newest.request if lake.newest is not None else None
            offsets = dict(newest.offsets) if newest is not None else {}
            known = dict(table.record.offsets) if table.record is not None else {}
            known = known if table.route is None else offsets  # the source knows nothing of a mirrored table
            if known != offsets or any(offsets.get(bucket, 0) < len(log) for bucket, log in table.logs.items()):
                return False
        return True

    def refused(self) -> list[SimTable]:
        """Return the tables that the lake cannot take, for it divides them by another count of buckets.

        Those as well that it could not take when a service set them aside, and could take now.
        """
        if not self._world.rescaling.changed:
            return []
        tables, lakes = self._world.source.tables_by_path, self._world.lake.tables
        found = ((table, lakes.get(path)) for path, table in tables.items())
        of_table = ((table, lake if lake and lake.table_id == table.spec.table_id else None) for table, lake in found)
        misfits = self._world.rescaling.misfits
        return [
            table
            for table, lake in of_table
            if not fits(table, lake) or (table.spec.table_id in misfits and self._fails_alone(table))
        ]

    def _fails_alone(self, table: SimTable) -> bool:
        """Say whether a service has set a table aside for a person to look at, and works on."""
        return any(table.spec.table_id in one.suspended for one in self._world.running())

    def leftovers(self) -> list[str]:
        """Return what is there and should not be once everybody has gone home in order."""
        world = self._world
        wrong = [f"lease leaked: {lease} {held}" for lease, held in world.source.leases.held().items()]
        tables = (*world.lake.tables.values(), *world.lake.aside)
        named = set[str]().union(*(table.named() for table in tables)) if tables else set()
        aside = tuple(f"{table.location}/" for table in world.lake.aside)
        # Of a table that was dropped between the two commits nobody can ask any more whether its letters may go.
        dropped = self._dropped_with_letters()
        aside += tuple(f"{table.location}/" for table in dropped)
        # Nobody can know what tasks write whose coordinator woke up after its fence time, until it sees its successor.
        woken = tuple(f"/{one.incarnation}/" for one in world.coordinators if one.loop.slept_s >= FENCE_S)
        orphans = (
            file
            for file in sorted(world.lake.files)
            if file not in named and file not in world.lake.stray and not any(who in file for who in woken)
        )
        # What tried and did not land on a table that was set aside stays there: nobody can ask any more what it names.
        wrong += [f"{ORPHAN} {file}" for file in orphans if not file.startswith(aside)]
        # What did not complete under a service's newest start is for its next one to sweep.
        newest = {one.service_name: str(one.incarnation) for one in world.coordinators}
        segments = (name for name in world.files.all if parse_segment(name) is not None)
        wrong += [f"segment left: {name}" for name in segments if name.split("/")[1] not in newest.values()]
        chks = (name for name in world.files.all if "/chk-" in name)
        wrong += [
            f"checkpoint left: {name}"
            for name in chks
            if name.endswith("/_metadata") or name.split("/")[1] not in newest.values()
        ]
        journals = (name for name in world.files.all if name.endswith("/journal"))
        gone = {str(table.table_id) for table in dropped}
        wrong += [f"journal left: {name}" for name in journals if name.split("/")[-2].partition("-")[0] not in gone]
        return wrong

    def _dropped_with_letters(self) -> list[LakeTable]:
        if not self._world.keeps_letters:
            return []
        known = {table.spec.table_id for table in self._world.source.tables_by_path.values()}
        return [table for table in self._world.lake.tables.values() if table.table_id not in known]

    def at_rest(self) -> None:
        """Check everything that must hold at the end."""
        world = self._world
        for sentence in self.leftovers():
            self.fail(sentence)
        for path, lake in world.lake.tables.items():
            table = world.source.tables_by_path.get(path)
            newest = lake.newest
            if table is None or newest is None or newest.request is None or table.spec.table_id != lake.table_id:
                continue
            if world.keeps_letters:
                self._each_row_is_somewhere(table, lake, newest.request)
            record = table.record
            if table.route is not None:
                if record is not None:
                    self.fail(f"{path}: the source has a record of a mirrored table: {record}")
            elif record is None or dict(record.offsets) != dict(newest.request.offsets):
                self.fail(f"{path}: the source's record is {record}, the lake stands at {newest.request.offsets}")
        if world.connections:
            self.fail(f"{len(world.connections)} connections are left")

    def _each_row_is_somewhere(self, source: SimTable, table: LakeTable, request: CommitRequest) -> None:
        """Each record is in the table or a dead letter, never both, never neither."""
        rows = self._rows(table)
        for letter in letters_of(self._world, source):
            rows.setdefault(letter.bucket, []).append(letter)
        for some in rows.values():
            some.sort(key=lambda row: row.offset)
        for bucket in source.logs:
            self._bucket(source, bucket, rows.get(bucket, []), request.offsets.get(bucket))


def _is_used(lake: LakeTable, done: CompletedCheckpoint) -> bool:
    """Say whether the lake has gone on beyond a checkpoint: not by a step that was made from it, or from one before."""
    newest, was = lake.newest, done.state.round
    request = newest.request if newest is not None else None
    if request is None or request.round_id != was.round_id:
        return (newest.number if newest is not None else None) != was.base_commit
    offsets = done.state.offsets()
    if any(offset > offsets.get(bucket, 0) for bucket, offset in request.offsets.items()):
        return True
    # A commit has every row in a closed file: what this one holds in segments it had in other files by then.
    ahead = any(offset > request.offsets.get(bucket, 0) for bucket, offset in offsets.items())
    return newest is not None and newest.number != was.base_commit and not ahead and not complete(done.state.exchange)


def _snapshots(who: Coordinator, table_id: int) -> tuple[KvSnapshot, ...]:
    table = who.tables.get(table_id)
    return () if table is None else table.snapshots
