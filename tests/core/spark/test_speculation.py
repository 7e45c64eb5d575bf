from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakeward.model.settings import SparkSettings
from lakeward.spark.session import spark_options

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("conf", "warnings"), [({"spark.speculation": "true"}, 1), ({"spark.ui.port": "4041"}, 0)])
def test_speculation_is_off_whatever_is_configured(conf: dict[str, str], warnings: int, tmp_path: Path) -> None:
    with capture_logs() as logs:
        options = spark_options(SparkSettings(conf=conf), tmp_path)
    assert options["spark.speculation"] == "false"
    assert len(logs) == warnings
    assert conf.items() - {("spark.speculation", "true")} <= options.items()
