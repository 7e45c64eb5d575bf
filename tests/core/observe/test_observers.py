"""A service looks for its page and its telemetry by name, and only where the configuration asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import ConfigError
from lakeward.hooks import discovery
from lakeward.model.settings import ObserveSettings
from lakeward.observe.observers import find_observers

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_is_looked_for_that_no_key_asks_for() -> None:
    assert find_observers(ObserveSettings()) == {}


@pytest.mark.parametrize(
    ("observe", "message"),
    [
        (ObserveSettings(status_port=0), r"observe\.status_port: .*pip install 'lakeward\[page\]'.*no lakeward-page"),
        (ObserveSettings(telemetry=True), r"observe\.telemetry: .*pip install 'lakeward\[telemetry\]'"),
    ],
)
def test_what_is_not_installed_is_an_error_that_names_key_and_extra(
    observe: ObserveSettings, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_scan", lambda _group: ())
    with pytest.raises(ConfigError, match=message):
        find_observers(observe)


def test_an_observer_is_the_function_that_a_distribution_publishes_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lakeward_page-1.5.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: lakeward-page\nVersion: 1.5\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text("[lakeward.observer]\npage = some_page:serve\n", encoding="utf-8")
    (tmp_path / "some_page.py").write_text("def serve(service):\n    return service\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    discovery.forget()
    try:
        assert find_observers(ObserveSettings(status_port=0))["page"].__module__ == "some_page"
    finally:
        discovery.forget()
