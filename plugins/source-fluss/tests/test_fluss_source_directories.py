"""Several remote directories (`remote.data.dirs`): each path is used as the server gives it, whatever its root."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import TableBucket
from lakeward_source_fluss.formats.storage import Storage
from lakeward_source_fluss.rpc.releases import Release
from lakeward_source_fluss.source.offsets import read_offsets
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.messages import (
    FetchLogRequest,
    FetchLogResponse,
    PbFetchLogRespForBucket,
    PbFetchLogRespForTable,
    PbRemoteLogFetchInfo,
    PbRemoteLogSegment,
)
from lakeward_source_fluss_kit.oneserver import BUCKET, TABLE_ID, OneServer, compacted, log_batch
from lakeward_source_fluss_kit.server import Answer, Call

FORMS = ["{}", "file:{}", "file://{}"]
"""How servers name a directory, as they were configured."""


@pytest.mark.parametrize("form", FORMS)
def test_files_of_one_snapshot_are_read_from_several_directories(tmp_path: Path, form: str, release: Release) -> None:
    with OneServer(primary_key=("id",), release=release) as server, server.client() as client:
        values = ((bytes([key]), b"\1\0" + compacted(key, b"x")) for key in range(10))
        listed = server.put_snapshot(tmp_path / "db", values, log_offset=5)
        moved = []
        for number, one in enumerate(listed.snapshot_files):
            place = tmp_path / f"root-{number}" / "deep" / "under an id"
            place.parent.mkdir(parents=True)
            shutil.move(one.remote_path.removeprefix("file:"), place)
            moved.append(replace(one, remote_path=form.format(place)))
        answer = replace(listed, snapshot_files=tuple(moved))
        server.further[ApiKey.GET_KV_SNAPSHOT_METADATA] = lambda _: answer
        (tmp_path / "spool").mkdir()

        batches = server.reader(client, tmp_path / "spool").read_snapshot(SnapshotSplit("b0", BUCKET, (), 1, 5))
        assert sum(batch.records.num_rows for batch in batches) == 10


def test_segments_are_read_from_the_directory_that_each_answer_names(tmp_path: Path, release: Release) -> None:
    def segment(root: str, start: int) -> PbRemoteLogFetchInfo:
        raw = log_batch(start, (compacted(number, b"x") for number in range(start, start + 10)))
        place = tmp_path / root / "log"
        (place / "s").mkdir(parents=True)
        (place / "s" / f"{start:020d}.log").write_bytes(raw)
        listed = PbRemoteLogSegment(
            remote_log_segment_id="s",
            remote_log_start_offset=start,
            remote_log_end_offset=start + 10,
            segment_size_in_bytes=len(raw),
        )
        return PbRemoteLogFetchInfo(remote_log_tablet_dir=str(place), remote_log_segments=(listed,), first_start_pos=0)

    parts = {0: segment("old root", 0), 10: segment("new root", 10)}

    def fetched(call: Call) -> Answer:
        (asked,) = call.read(FetchLogRequest).tables_req[0].buckets_req
        bucket = PbFetchLogRespForBucket(bucket_id=0, remote_log_fetch_info=parts.get(asked.fetch_offset))
        return FetchLogResponse(tables_resp=(PbFetchLogRespForTable(table_id=TABLE_ID, buckets_resp=(bucket,)),))

    with OneServer(release=release, further={ApiKey.FETCH_LOG: fetched}) as server, server.client() as client:
        batches = server.reader(client).read_log(LogSplit("b0", BUCKET, (), 0, 20))

        assert [one for batch in batches for one in batch.records.column("id").to_pylist()] == list(range(20))


@pytest.mark.parametrize("form", FORMS)
def test_offsets_file_is_read_from_whatever_directory_its_commit_names(tmp_path: Path, form: str) -> None:
    file = tmp_path / "another root" / "x.offsets"
    file.parent.mkdir()
    file.write_text('{"version":1,"table_id":10,"bucket_offsets":[7]}', encoding="utf-8")

    found = read_offsets(Storage(), OneServer.spec(()), form.format(file))

    assert found == {TableBucket(TABLE_ID, None, 0): 7}
