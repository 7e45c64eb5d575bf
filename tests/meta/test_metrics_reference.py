"""The page of metrics, the alerts and the dashboard are what the code exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lakeward.observe.condition import STATUSES
from lakeward.observe.metrics_reference import exported, render_metrics, sample_names

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
ALERTS = ROOT / "docs" / "deploy" / "prometheus" / "lakeward.rules.yml"
DASHBOARD = ROOT / "docs" / "deploy" / "grafana" / "lakeward.json"
_NAME = re.compile(r"\blakeward_\w+")
_STATUS = re.compile(r'status=~?"([^"]*)"')


def names() -> set[str]:
    """Return the name of each series that a service can export."""
    return {name for metric in exported() for name in sample_names(metric)}


def expressions() -> list[str]:
    """Return the queries of the dashboard."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_the_page_of_metrics_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_metrics(), "python -m lakeward.cli.reference docs/reference"


def test_each_metric_has_a_name_on_the_page() -> None:
    unnamed = [metric.name for metric in exported() if not list(sample_names(metric))]
    assert unnamed == [], "give each a value in `_REPORT` of lakeward.observe.metrics_reference"


def test_each_metric_that_the_code_names_is_on_the_page() -> None:
    source = (ROOT / "core/src/lakeward/observe/metrics.py").read_text(encoding="utf-8")
    declared = re.findall(r'^    "((?:exchange|checkpoint|slots)\w*)": ', source, re.MULTILINE)
    assert len(declared) > 20
    assert {f"lakeward_{name}" for name in declared} <= names()


@pytest.mark.parametrize("file", [ALERTS, DASHBOARD], ids=lambda path: path.name)
def test_alerts_and_dashboard_use_metrics_that_are_exported(file: Path) -> None:
    used = set(_NAME.findall(file.read_text(encoding="utf-8")))
    assert used
    assert used <= names()


def test_alerts_and_dashboard_ask_for_statuses_that_a_table_can_have() -> None:
    asked = [found for text in [ALERTS.read_text(encoding="utf-8"), *expressions()] for found in _STATUS.findall(text)]
    assert {status for one in asked for status in one.split("|")} <= set(STATUSES)
    assert len(asked) >= 4


def test_each_alert_says_what_happened_and_what_to_do() -> None:
    text = ALERTS.read_text(encoding="utf-8")
    alerts = text.split("- alert: ")[1:]
    assert len(alerts) == 9
    assert [one.splitlines()[0] for one in alerts if "summary:" not in one or "description:" not in one] == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian's package prometheus)")
def test_alerts_fire_when_they_are_to_and_only_then() -> None:
    command = ["promtool", "test", "rules", "lakeward.rules.test.yml"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_panel_has_a_title_a_query_and_a_place_of_its_own() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert all(panel["title"] and panel["targets"] for panel in panels)
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
