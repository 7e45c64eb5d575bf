from __future__ import annotations

from dataclasses import replace

import pytest

from lakeward.errors import CorruptFileError, FencedError
from lakeward.model.identity import Incarnation
from lakeward.model.tables import TablePath
from lakeward.storage.records import pack
from lakeward.storage.service_state import ServiceState, ServiceStateStore, StoredTable, decode, encode
from lakeward.storage.small_files import SmallFiles

FIRST = Incarnation("svc", 1000, "00000000000000aa")
SECOND = Incarnation("svc", 2000, "00000000000000bb")
TABLE = StoredTable(TablePath("db", "t"), 7, 3, 1, 60.0, 1_700_000_000_000)
WITHOUT = ServiceState(FIRST, tables=(TABLE,))
IDS = ServiceState(FIRST, tables=(TABLE,), lease_backend="b", lease_state=b"s", lease_ids=("svc-2-bb-1", "svc-1-aa-3"))
GIVEN_UP = replace(WITHOUT, invalidated={7: "10 records were read; 9 rows are in its files"})
WITH = replace(WITHOUT, lease_backend="fluss", lease_state=b"{}")
GOLDEN_1 = (
    "4c4b574400010001000000972dacc62382ab696e6361726e6174696f6eb97376632d313030302d3030303030303030303030"
    "3030306161a67461626c65739186a47061746882a86461746162617365a26462a57461626c65a174a87461626c655f696407"
    "a565706f636803b1636f6f7264696e61746f725f65706f636801ab66726573686e6573735f73cb404e000000000000aa7265"
    "6e657765645f6d73cf0000018bcfe56800"
)
GOLDEN_2 = (
    "4c4b574400020003000000972dacc62382ab696e6361726e6174696f6eb97376632d313030302d3030303030303030303030"
    "3030306161a67461626c65739186a47061746882a86461746162617365a26462a57461626c65a174a87461626c655f696407"
    "a565706f636803b1636f6f7264696e61746f725f65706f636801ab66726573686e6573735f73cb404e000000000000aa7265"
    "6e657765645f6d73cf0000018bcfe56800000000053e849d43666c75737300000002a3a6bf437b7d"
)


@pytest.mark.parametrize(
    "state", [WITHOUT, WITH, ServiceState(FIRST), IDS, GIVEN_UP], ids=["1", "2", "empty", "lease ids", "invalidated"]
)
def test_a_state_survives(root: str, state: ServiceState) -> None:
    store = ServiceStateStore(SmallFiles(root))

    store.save(state)

    assert store.load("svc") == state


def test_a_service_that_never_ran_has_no_state(root: str) -> None:
    assert ServiceStateStore(SmallFiles(root)).load("svc") is None


def test_version_1_is_a_state_without_a_lease() -> None:
    assert encode(WITHOUT).hex() == GOLDEN_1
    assert decode(bytes.fromhex(GOLDEN_1), "f").lease_backend is None


def test_version_2_adds_the_backend_and_its_bytes() -> None:
    assert encode(WITH).hex() == GOLDEN_2
    assert decode(bytes.fromhex(GOLDEN_2), "f") == WITH


def test_the_newest_start_counts_and_sweeps_the_earlier_ones(root: str) -> None:
    store = ServiceStateStore(SmallFiles(root))
    store.save(WITH)

    store.save(ServiceState(SECOND))

    assert store.load("svc") == ServiceState(SECOND)
    assert SmallFiles(root).names("svc", "service.state") == (f"svc/{SECOND}/service.state",)


def test_a_zombie_cannot_destroy_its_successors_state(root: str) -> None:
    store = ServiceStateStore(SmallFiles(root))
    store.save(ServiceState(SECOND))

    with pytest.raises(FencedError, match=str(SECOND)) as caught:
        store.save(WITH)

    assert caught.value.by == str(SECOND)
    assert store.load("svc") == ServiceState(SECOND)


def test_a_zombie_that_wakes_between_check_and_write_destroys_nothing(root: str) -> None:
    store = ServiceStateStore(SmallFiles(root))

    class Paused(SmallFiles):
        def write(self, name: str, data: bytes) -> None:
            store.save(ServiceState(SECOND))
            super().write(name, data)

    ServiceStateStore(Paused(root)).save(WITH)

    assert store.load("svc") == ServiceState(SECOND)


def test_another_service_is_left_alone(root: str) -> None:
    store = ServiceStateStore(SmallFiles(root))
    other = ServiceState(Incarnation("svc2", 9000, "00000000000000cc"))
    store.save(other)

    store.save(WITH)

    assert store.load("svc2") == other


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"\x00",
        lambda data: data[:30] + b"\x00" + data[31:],
        lambda data: pack(3, (b"x",)),
        lambda data: pack(1, (b"\xc1",)),
        lambda data: b"",
        lambda data: encode(ServiceState(SECOND)),
    ],
    ids=["truncated", "trailing", "flipped", "future", "foreign", "empty", "another start's"],
)
def test_a_damaged_state_is_an_error_that_names_the_file(root: str, damage: object) -> None:
    files, name = SmallFiles(root), f"svc/{FIRST}/service.state"
    store = ServiceStateStore(files)
    store.save(WITH)
    assert callable(damage)
    files.write(name, damage(files.read(name)))

    with pytest.raises(CorruptFileError) as caught:
        store.load("svc")

    assert caught.value.file == files.path(name)
