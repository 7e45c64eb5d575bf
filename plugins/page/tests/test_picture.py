"""The picture of the page in README and pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward_page_kit import picture
from lakeward_service_kit.chromium import CHROMIUM, MISSING

FILE = Path(__file__).parents[3] / "docs" / "how-to" / "status-page.png"
PNG = b"\x89PNG\r\n\x1a\n"


def test_the_picture_in_the_readme_is_of_the_page_as_it_looks_now() -> None:
    kits = "tests/core/kit:plugins/page/tests/kit"
    how = f"PYTHONPATH={kits} python -m lakeward_page_kit.picture docs/how-to/status-page.png"
    found = picture.made_of(FILE.read_bytes())
    assert found == picture.fingerprint(), f"the page looks different now; make the picture anew: {how}"


@pytest.mark.chromium
@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
@pytest.mark.slow
def test_the_picture_is_made_by_a_browser_and_says_what_of(tmp_path: Path) -> None:
    picture.write(tmp_path / "page.png")
    made = (tmp_path / "page.png").read_bytes()
    assert made.startswith(PNG)
    assert len(made) > 50_000
    assert picture.made_of(made) == picture.fingerprint()
