from __future__ import annotations

from lakeward.model.tables import TableBucket, TablePath
from lakeward.storage.commit_records import CommitRecord, CommitRecords
from lakeward.storage.small_files import SmallFiles

RECORD = CommitRecord(TablePath("db", "t"), 7, 123, ((None, 0, 5), (2, 1, 9)), 1000)
OTHER = CommitRecord(TablePath("db", "u"), 8, None, (), 1000, disregarded=5, accepted=True)


def test_records_survive_and_are_listed(root: str) -> None:
    records = CommitRecords(SmallFiles(root), "svc")

    for record in (RECORD, OTHER):
        records.write(record)

    assert records.read(7) == RECORD
    assert records.list() == (RECORD, OTHER)
    assert RECORD.offsets == {TableBucket(7, None, 0): 5, TableBucket(7, 2, 1): 9}


def test_a_table_that_was_never_committed_or_was_dropped_has_no_record(root: str) -> None:
    records = CommitRecords(SmallFiles(root), "svc")
    assert records.read(7) is None

    records.write(RECORD)
    records.delete(7)
    records.delete(7)

    assert records.read(7) is None
    assert records.list() == ()
