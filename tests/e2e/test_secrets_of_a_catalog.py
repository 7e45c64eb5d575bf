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
_ICEBERG = """
type = "iceberg"
warehouse = "warehouse"
catalog = "rest"
uri = "http://admin:hush1@127.0.0.1:1/cat?token=hush2"
[lake.properties]
credential = "me:hush3"
"oauth2-server-uri" = "http://me:hush4@127.0.0.1:1/tok?pw=hush5&sig=hush6"
"""
_PAIMON_REST = """
type = "paimon"
warehouse = "lake"
metastore = "rest"
uri = "http://127.0.0.1:1/cat"
[lake.properties]
token = "hush1"
"header.X-Api-Key" = "hush2"
"s3.access-key" = "hush3"
"s3.secret-key" = "hush4"
"s3.session-token" = "hush5"
"""
_PAIMON_S3 = """
type = "paimon"
warehouse = "s3://lake/paimon"
[lake.properties]
"s3.endpoint" = "http://127.0.0.1:1"
"s3.access-key" = "hush1"
"s3.secret-key" = "hush2"
"s3.session-token" = "hush3"
"""
_CONFIG = """
[source]
type = "embedded"
path = "store"
[lake]
{lake}
[lease]
backend = "fluss"
[checkpoint]
root = "state"
[observe]
log = "{form}"
level = "debug"
"""
_SHOW, _TABLES, _DOCTOR = ("config", "show"), ("tables", "--debug"), ("doctor", "--no-spark")
_RUN = ("run", "--once", "--no-progress", "--debug")
_IN_WORDS = {
    _ICEBERG: f"http://{MASK}@127.0.0.1:1/cat?token={MASK}",
    _PAIMON_REST: "http://127.0.0.1:1/cat: connection refused",
    _PAIMON_S3: "127.0.0.1",
}
"""What is said of each that cannot be reached."""


@pytest.mark.parametrize(
    ("lake", "form", "commands"),
    [
        (
            _ICEBERG,
            "text",
            (_SHOW, ("config", "check", "-o", "json"), _TABLES, ("tables", "-o", "json"), _DOCTOR, _RUN),
        ),
        (_ICEBERG, "json", (_TABLES, _RUN)),
        (_PAIMON_REST, "json", (_SHOW, _TABLES, _DOCTOR, _RUN)),
        (_PAIMON_S3, "text", (_TABLES, _DOCTOR)),
    ],
    ids=["iceberg-text", "iceberg-json", "paimon-rest-json", "paimon-s3-text"],
)
def test_no_command_tells_a_password_of_the_catalog_in_an_error_a_log_or_a_traceback(
    tmp_path: Path, lake: str, form: str, commands: tuple[tuple[str, ...], ...]
) -> None:
    EmbeddedStore.create(tmp_path / "store").close()
    (tmp_path / "lakeward.toml").write_text(_CONFIG.format(lake=lake, form=form), encoding="utf-8")
    told = ""
    for words in commands:
        done = subprocess.run(
            [*_LAKEWARD, *words], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=200, check=False
        )
        told += done.stdout + done.stderr
    assert _IN_WORDS[lake] in told
    assert "Traceback" in told
    assert "hush" not in told
