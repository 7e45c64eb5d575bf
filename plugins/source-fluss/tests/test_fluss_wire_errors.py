from __future__ import annotations

import pytest

from lakeward.errors import LeaseApiMissingError, SourceError, TableGoneError
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.errors import (
    BucketCountError,
    EpochFencedError,
    FlussServerError,
    NotCoordinatorLeaderError,
    StaleMetadataError,
    check_code,
    server_error,
    unsupported,
)


def test_every_code_is_an_error_with_its_name() -> None:
    for code in ErrorCode:
        error = server_error("CALL", code, "text")
        assert (error.server_code, error.server_name, error.server_message) == (code, code.name, "text")


def test_absent_and_zero_are_no_error() -> None:
    check_code("bucket 0", None)
    check_code("bucket 0", 0, "")


def test_the_message_names_the_call_the_code_and_the_servers_words() -> None:
    with pytest.raises(FlussServerError, match=r"FETCH_LOG of t, bucket 3: .*LOG_OFFSET_OUT_OF_RANGE \(19\): too low"):
        check_code("FETCH_LOG of t, bucket 3", 19, "too low")


def test_a_missing_table_is_a_table_gone() -> None:
    error = server_error("GET_TABLE_INFO", ErrorCode.TABLE_NOT_EXIST)
    assert isinstance(error, TableGoneError)
    assert error.code == TableGoneError.code


@pytest.mark.parametrize("code", [12, 21, 44, 65, 74, 75])
def test_answers_of_the_wrong_server_ask_for_fresh_metadata(code: int) -> None:
    error = server_error("CALL", code)
    assert isinstance(error, StaleMetadataError)
    assert error.retriable


def test_the_highest_code_of_1_0_is_known() -> None:
    assert (max(ErrorCode).name, max(ErrorCode).value) == ("TABLET_METADATA_NOT_READY", 75)


def test_another_count_of_buckets_has_a_class_of_its_own() -> None:
    error = server_error("FETCH_LOG", 74)
    assert isinstance(error, BucketCountError)
    assert error.server_name == "STALE_METADATA"
    assert not isinstance(server_error("FETCH_LOG", 75), BucketCountError)


def test_a_standby_coordinator_has_a_class_of_its_own() -> None:
    assert isinstance(server_error("CALL", 65), NotCoordinatorLeaderError)


@pytest.mark.parametrize("code", [23, 50])
def test_both_epochs_fence(code: int) -> None:
    error = server_error("LAKE_TIERING_HEARTBEAT", code)
    assert isinstance(error, EpochFencedError)
    assert not error.retriable


def test_a_code_of_a_later_server_is_an_error_that_is_not_retried() -> None:
    error = server_error("CALL", 999)
    assert (error.server_code, error.retriable) == (999, False)
    assert isinstance(error, SourceError)


def test_missing_leases_are_the_cores_own_error() -> None:
    error = unsupported(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, "h:1")
    assert isinstance(error, LeaseApiMissingError)
    assert not isinstance(unsupported(ApiKey.SCAN_KV, "h:1"), LeaseApiMissingError)
