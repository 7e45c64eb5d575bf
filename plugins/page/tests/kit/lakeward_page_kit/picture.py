"""The picture of the status page in the README: made by a Chromium, of a service that is described here.

    python -m lakeward_page_kit.picture docs/how-to/status-page.png

The picture says which templates and styles it was made of, so that a test finds one that is no longer the page.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import zlib
from importlib.resources import files
from pathlib import Path

from msgspec.structs import replace

import lakeward_page
from lakeward.model.status import RoundReport, ServiceReport, TableCondition, TableReport
from lakeward.observe.live_status import LiveStatus
from lakeward_page_kit.page import Page
from lakeward_service_kit.chromium import Browser
from lakeward_service_kit.example_reports import REPORT, ROUND, SUBTASK, TABLE
from lakeward_testing.clock import FakeClock

NOW_MS = 1_796_042_400_000
MADE_OF = (
    "templates/base.html", "templates/status.html", "templates/round_parts.html", "templates/badge.html",
    "static/page.css",
)  # fmt: skip
KEYWORD = b"made of"
_WIDTH = 1280
_CHUNKS_AT = 33
"""Bytes of a PNG's signature and its first chunk, which says how large it is."""


def fingerprint() -> str:
    """Return what the picture is made of: the page's looks, and this description."""
    own = Path(__file__).read_bytes()
    parts = [files(lakeward_page).joinpath(name).read_bytes() for name in MADE_OF]
    return hashlib.sha256(b"\0".join([own, *parts])).hexdigest()


def made_of(picture: bytes) -> str:
    """Return what a picture says that it was made of, empty if it does not."""
    return picture.partition(KEYWORD + b"\0")[2][:64].decode("ascii", "replace")


def write(file: Path) -> None:
    """Make the picture anew."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        Browser(Path(folder) / "profile") as browser,
    ):
        clock = FakeClock(wall_ms=NOW_MS)
        page = Page(clock, LiveStatus(clock), folder)
        page.show(_report())
        shown = page.serve()
        tab = browser.tab(width=_WIDTH)
        tab.open(shown.url)
        picture = tab.picture(whole=True)
        shown.close()
    file.write_bytes(picture[:_CHUNKS_AT] + _text_chunk(fingerprint()) + picture[_CHUNKS_AT:])


def _report() -> ServiceReport:
    tables = (
        _table("shop.orders", 1, "running", "ok", "The lake has everything up to 12 s ago.", round=_running()),
        _table("shop.carts", 2, "idle", "ok", "The lake has everything."),
        _table("web.clicks", 3, "waiting", "late", "18,200 rows wait, the oldest for 4 min 10 s", lag_rows=18_200,
               lag_s=250.0, complete_ms=NOW_MS - 250_000, queue_position=1),
        _table("hr.people", 4, "suspended", "suspended", "column salary: the source has decimal(12, 2), the lake int",
               lag_rows=None, lag_s=None, code="LW-305"),
    )  # fmt: skip
    return replace(
        REPORT, service="tier", incarnation="tier-1796035200000-5f1d0a9c", pid=4711, host="tiering-1",
        written_ms=NOW_MS, started_ms=NOW_MS - 7_200_000, lease_expires_ms=NOW_MS + 600_000, tables=tables,
    )  # fmt: skip


def _table(path: str, table_id: int, phase: str, status: str, message: str, **changes: object) -> TableReport:
    action = f"Widen the column in the lake, then `lakeward tables resume {path}`." if status == "suspended" else ""
    known = {
        "condition": TableCondition(status, message, action, NOW_MS - 1_500_000), "round": None, "lag_rows": 0,
        "lag_s": 0.0, "complete_ms": NOW_MS - 12_000, "committed_ms": NOW_MS - 14_000, "freshness_s": 60.0,
        "rounds": 118 + table_id, "rows": 412_000 * table_id, "lake_files": 23 * table_id,
    }  # fmt: skip
    return replace(TABLE, path=path, table_id=table_id, status=phase, message=message, **(known | changes))


def _running() -> RoundReport:
    subtasks = (
        replace(SUBTASK, split="1-0-log-411000-412600", rows=5_120, size_bytes=1_310_720, host="worker-1"),
        replace(SUBTASK, subtask=1, split="1-1-log-409800-411500", rows=4_870, size_bytes=1_245_184, host="worker-2"),
    )
    return replace(
        ROUND, round_name="tier-1796035200000-5f1d0a9c/1-7-119", started_ms=NOW_MS - 9_000, rows=9_990, splits=8,
        splits_done=5, files=5, size_bytes=2_555_904, rows_per_s=1_110.0, slots=2, slots_asked=2, subtasks=subtasks,
    )  # fmt: skip


def _text_chunk(text: str) -> bytes:
    """Return a chunk of a PNG that keeps a text."""
    data = b"tEXt" + KEYWORD + b"\0" + text.encode("ascii")
    return (len(data) - 4).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
