from __future__ import annotations

import re
from pathlib import Path

from lakeward.observe.condition import STATUSES


def test_the_page_for_operators_has_each_status_of_a_table_with_its_meaning(root: Path) -> None:
    page = (root / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")
    described = dict(re.findall(r"^\| `([a-z-]+)` \| (.*?) \|", page, flags=re.MULTILINE))
    missing = {status: meaning for status, meaning in STATUSES.items() if not described.get(status)}
    assert missing == {}
