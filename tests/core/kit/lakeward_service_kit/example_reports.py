"""A report of a service with one table, whose round runs."""

from __future__ import annotations

from lakeward.model.status import RoundReport, ServiceReport, SubtaskReport, TableCondition, TableReport

SUBTASK = SubtaskReport(0, 1, "worker-1", "reading", "7-0-log-0-100", 2, 1234, 4096, 0.4)
ROUND = RoundReport(
    "demo-1/7-1-1", "running", 1_000, None, 1234, 8, 2, 3, 4096, 617.0, None, slots=1, slots_asked=2,
    subtasks=(SUBTASK,),
)  # fmt: skip
TABLE = TableReport(
    "shop.orders", 7, "running", "", 500, 12.0, 3, 12345, ROUND, freshness_s=60.0, complete_ms=0, committed_ms=0,
    lake_files=17, condition=TableCondition("ok", "The lake has everything.", since_ms=0),
)  # fmt: skip
REPORT = ServiceReport(
    "demo", "demo-1-0123456789abcdef", 42, "serving", 5_000, "http://127.0.0.1:4040", (TABLE,), "lease", 4, 1,
    host="vm", started_ms=1, lease_expires_ms=3_600_000,
)  # fmt: skip
