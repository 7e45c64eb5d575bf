"""What a service says of itself has no secret in any of its free texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from lakeward.model.secrets import MASK, SecretTexts
from lakeward.model.status import (
    CheckpointReport,
    LakeAway,
    ReplayReport,
    ServiceReport,
    TableCondition,
    UpkeepReport,
)
from lakeward.observe.masking import masked_report, masked_round
from lakeward_service_kit.example_reports import REPORT, ROUND, TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

TOLD = "cannot reach s3://me:pw@host with hush-hush"
HIDDEN = f"cannot reach s3://{MASK}@host with {MASK}"
HIDE = SecretTexts(["hush-hush"]).hide


def test_no_text_of_a_report_has_a_secret() -> None:
    aborted = replace(ROUND, reason=TOLD, checkpoint=CheckpointReport(aborted=1, reason=TOLD))
    wrong, upkeep = TableCondition("retrying", TOLD), UpkeepReport("compaction", "failed", 1, 2, 3, 4, reason=TOLD)
    table = replace(TABLE, message=TOLD, failure=TOLD, condition=wrong, round=aborted, upkeep=upkeep)
    table = replace(table, replay=ReplayReport(reason=TOLD))
    away = LakeAway(1, 2, TOLD)
    told = msgspec.json.encode(replace(REPORT, tables=(table,), lease_message=TOLD, lake_away=away)).decode()
    assert told.count(TOLD) == len(list(_free_texts(msgspec.inspect.type_info(ServiceReport))))
    masked = masked_report(msgspec.json.decode(told, type=type(REPORT)), HIDE)
    assert msgspec.json.encode(masked).decode() == told.replace(TOLD, HIDDEN)


def _free_texts(info: msgspec.inspect.Type) -> Iterator[str]:
    """Yield the fields within a type that tell of errors in words."""
    for inner in (*getattr(info, "types", ()), getattr(info, "item_type", None), *getattr(info, "item_types", ())):
        if inner is not None:
            yield from _free_texts(inner)
    for field in getattr(info, "fields", ()):
        if isinstance(field.type, msgspec.inspect.StrType) and field.name.endswith(("reason", "message", "failure")):
            yield field.name
        yield from _free_texts(field.type)


def test_a_report_without_secrets_is_passed_on_as_it_is() -> None:
    masked = masked_report(REPORT, HIDE)
    assert masked == REPORT
    assert masked.tables[0] is REPORT.tables[0]


def test_no_text_of_a_round_that_has_ended_has_a_secret() -> None:
    assert masked_round(replace(ROUND, reason=TOLD), HIDE).reason == HIDDEN
