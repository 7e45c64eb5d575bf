from __future__ import annotations

import sys

import pytest

from lakeward.cli.output import Columns, Output

NAMES = ("table", "status", "tiered#", "last commit", "message")
ROW = ("shop.orders", "behind", "123,456,789,012", "2026-11-22 14:41:09", "The lake has not all rows.")


@pytest.mark.parametrize(("width", "lines"), [(100, 2), (60, 5)])
def test_a_terminal_too_narrow_for_a_table_gets_a_line_for_each_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, lines: int
) -> None:
    monkeypatch.setenv("COLUMNS", f"{width}")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    Output("text").show({}, Columns(NAMES, [ROW]))
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == lines
    assert all(any(cell in line for line in shown) for cell in ROW)


@pytest.mark.parametrize(("width", "beside"), [(100, 4), (50, 3), (20, 2)])
def test_what_has_no_room_beside_a_row_stands_below_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, beside: int
) -> None:
    monkeypatch.setenv("COLUMNS", f"{width}")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    Output("text").show({}, Columns(NAMES, [ROW], details=1))
    shown = capsys.readouterr().out.splitlines()
    assert all(cell in shown[1] for cell in ROW[:beside])
    below = [f"  {name.rstrip('#')}: {cell}" for name, cell in zip(NAMES[beside:], ROW[beside:], strict=True)]
    assert " ".join("\n".join(below).split()) == " ".join("\n".join(shown[2:]).split())
