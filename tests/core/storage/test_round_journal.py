from __future__ import annotations

import pytest
from msgspec.structs import replace

from lakeward.errors import CorruptFileError
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.tables import TablePath
from lakeward.storage.records import pack
from lakeward.storage.round_journal import JournalStore, RoundJournal, decode, encode
from lakeward.storage.small_files import SmallFiles

START = Incarnation("svc", 1000, "00000000000000aa")
JOURNAL = RoundJournal.begun(RoundId(START, 7, 3, 1), TablePath("db", "t"), None, None, "/w/t/data/r")
COMMITTING = replace(
    JOURNAL,
    base_snapshot=11,
    base_commit=10,
    commits=(("6f9619ff-8b86-d011-b42d-00c04fc964ff", 2**62),),
    swept_ms=1_700_000_000_000,
)
GOLDEN = (
    "4c4b574400010001000000a3577aebe6de000aab696e6361726e6174696f6eb97376632d313030302d303030303030303030"
    "30303030306161a87461626c655f696407a565706f636803a66e756d62657201a47061746882a86461746162617365a26462"
    "a57461626c65a174ad626173655f736e617073686f74c0ab626173655f636f6d6d6974c0ab66696c655f707265666978ab2f"
    "772f742f646174612f72a7636f6d6d69747390a873776570745f6d73c0"
)
EARLIER = (
    "4c4b574400010001000000a19e00be5c8aab696e6361726e6174696f6eb97376632d313030302d3030303030303030303030"
    "3030306161a87461626c655f696407a565706f636803a66e756d62657201a47061746882a86461746162617365a26462a574"
    "61626c65a174ad626173655f736e617073686f74c0ab626173655f636f6d6d6974c0ab66696c655f707265666978ab2f772f"
    "742f646174612f72a7636f6d6d69747390a873776570745f6d73c0"
)
"""The same with fewer fields that may be left out: msgpack counts them in one byte then."""


@pytest.mark.parametrize("journal", [JOURNAL, COMMITTING], ids=["writing", "committing"])
def test_a_journal_survives(root: str, journal: RoundJournal) -> None:
    journals = JournalStore(SmallFiles(root), "svc")

    journals.write(journal)

    assert journals.list() == (journal,)
    assert SmallFiles(root).names("svc", "journal") == (f"svc/{START}/7-3-1/journal",)


def test_version_1_has_these_bytes() -> None:
    assert encode(JOURNAL).hex() == GOLDEN
    assert decode(bytes.fromhex(GOLDEN), "f") == decode(bytes.fromhex(EARLIER), "f") == JOURNAL


def test_journals_of_all_starts_are_listed_but_not_another_services(root: str) -> None:
    files = SmallFiles(root)
    later = replace(JOURNAL, incarnation="svc-2000-00000000000000aa", epoch=1)
    other = replace(JOURNAL, incarnation="svc2-1-00000000000000aa", epoch=1)
    for journal in (later, JOURNAL):
        JournalStore(files, "svc").write(journal)
    JournalStore(files, "svc2").write(other)

    assert JournalStore(files, "svc").list() == (JOURNAL, later)


def test_a_deleted_journal_is_gone_and_may_be_deleted_again(root: str) -> None:
    journals = JournalStore(SmallFiles(root), "svc")
    journals.write(JOURNAL)

    journals.delete(JOURNAL)
    journals.delete(JOURNAL)

    assert journals.list() == ()


@pytest.mark.parametrize(
    "data",
    [
        encode(JOURNAL)[:-1],
        encode(JOURNAL) + b"\x00",
        pack(2, (b"x",)),
        pack(1, (b"\xc1",)),
    ],
    ids=["truncated", "trailing", "future", "foreign"],
)
def test_a_damaged_journal_is_an_error_that_names_the_file(root: str, data: bytes) -> None:
    files, name = SmallFiles(root), f"svc/{START}/7-3-1/journal"
    journals = JournalStore(files, "svc")
    journals.write(JOURNAL)
    files.write(name, data)

    with pytest.raises(CorruptFileError) as caught:
        journals.list()

    assert caught.value.file == files.path(name)
