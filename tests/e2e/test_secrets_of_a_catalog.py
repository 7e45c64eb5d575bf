"""A catalog whose address and properties have passwords cannot be reached: no command tells them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lakeward.model.secrets import MASK
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
_LAKEWARD = [sys.executable, "-c", "from lakeward.cli.main import main; main()"]
_CONFIG = """
[source]
type = "embedded"
path = "store"
[lake]
type = "iceberg"
warehouse = "warehouse"
catalog = "rest"
uri = "http://admin:hush1@127.0.0.1:1/cat?token=hush2"
[lake.properties]
credential = "me:hush3"
"oauth2-server-uri" = "http://me:hush4@127.0.0.1:1/tok?pw=hush5&sig=hush6"
[lease]
backend = "fluss"
[checkpoint]
root = "state"
[observe]
log = "{form}"
level = "debug"
"""


@pytest.fixture(params=["text", "json"])
def away(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory with a configuration whose catalog nobody serves."""
    EmbeddedStore.create(tmp_path / "store").close()
    (tmp_path / "lakeward.toml").write_text(_CONFIG.format(form=request.param), encoding="utf-8")
    return tmp_path


def test_no_command_tells_a_password_of_the_catalog_in_an_error_a_log_or_a_traceback(away: Path) -> None:
    told = ""
    for words in (
        ("config", "show"),
        ("config", "check", "-o", "json"),
        ("tables", "--debug"),
        ("tables", "-o", "json"),
        ("doctor", "--no-spark"),
        ("run", "--once", "--no-progress", "--debug"),
    ):
        done = subprocess.run(
            [*_LAKEWARD, *words], cwd=away, capture_output=True, encoding="utf-8", timeout=200, check=False
        )
        told += done.stdout + done.stderr
    assert f"http://{MASK}@127.0.0.1:1/cat?token={MASK}" in told
    assert "Traceback" in told
    assert "hush" not in told
