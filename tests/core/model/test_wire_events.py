"""Events of the checkpoint protocol on the wire: what is sent is what is received."""

from __future__ import annotations

import pytest
from msgspec import structs

from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.machines.transport.frames import decode, encode
from lakeward.model.checkpoints import (
    BlockedEvent,
    CheckpointRef,
    Origin,
    PartFile,
    SplitProgress,
    SubtaskSnapshot,
)
from lakeward.model.events import (
    AckCheckpoint,
    AckClose,
    AnyEvent,
    AssignSplits,
    Close,
    Deploy,
    Open,
    SplitFinished,
    SubtaskDone,
)
from lakeward.model.results import LakeFile, WriteResult
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import TableBucket

BUCKET = TableBucket(1, None, 0)
LOG, SNAPSHOT = LogSplit("b0-0", BUCKET, ("x",), 0, 10), SnapshotSplit("b0-s4", BUCKET, (), 4, 70)
FILES = (LakeFile("a.parquet", "data", 3, 100, b"\x00"),)
HALF = SplitProgress(LOG, 5, FILES, 3, 17, {"read": 0.5}, left_out=1, empty_offsets=2)
BLOCKED = BlockedEvent(Origin(1, 0, 2, 9), WriteResult("b0-0", BUCKET, 10, 17, 3, FILES, {}, 1, 2))
PART = PartFile(0, 2, "subtask-0-2", 300, 12345)
DEPLOY = Deploy(
    attempt=3,
    table=b"",
    source="embedded",
    source_task=b"",
    lake="iceberg",
    lake_task=b"",
    fence_s=1.0,
    progress_s=1.0,
    checkpoint_root="memory://",
    checkpoint_ref=CheckpointRef("s", "s-1-2", 1, 2, 0),
    gateway_closed=7,
    restored=[BLOCKED],
)


def over_the_wire(event: AnyEvent) -> AnyEvent:
    """Send and receive."""
    envelope = Channel(ChannelKey("r", 1, 0, 2), "up").send(event)
    return decode(encode(envelope)[4:]).event


@pytest.mark.parametrize(
    "event",
    [
        Close(checkpoint=4),
        AckClose(checkpoint=4, sent=9),
        Open(checkpoint=4),
        SubtaskDone(),
        DEPLOY,
        SplitFinished(result=BLOCKED.result, origin=BLOCKED.origin),
        AssignSplits(splits=[HALF, SplitProgress.beginning(SNAPSHOT)]),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_is_received_as_it_was_sent(event: AnyEvent) -> None:
    assert over_the_wire(event) == event


def test_a_snapshot_travels_in_its_acknowledgement() -> None:
    whole = SplitProgress(SNAPSHOT, 0, (), 0, -1)
    snapshot = SubtaskSnapshot(0, 2, (HALF, whole), (BLOCKED,))
    received = over_the_wire(AckCheckpoint(checkpoint=4, part=PART, snapshot=snapshot))
    assert isinstance(received, AckCheckpoint)
    assert (received.checkpoint, received.part, received.snapshot) == (4, PART, snapshot)


def test_an_assigned_split_says_how_far_it_is() -> None:
    received = over_the_wire(AssignSplits(splits=[HALF, SplitProgress.beginning(SNAPSHOT)]))
    assert isinstance(received, AssignSplits)
    assert received.splits == [HALF, SplitProgress.beginning(SNAPSHOT)]


def test_what_a_subtask_is_deployed_with_is_not_told() -> None:
    told = repr(structs.replace(DEPLOY, source_task=b"hush", lake_task=b"hush", checkpoint_root="s3://a:hush@b/c"))
    assert "hush" not in told
    assert str(DEPLOY.attempt) in told
