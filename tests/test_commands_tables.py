"""Tables on the terminal: aligned, and wrapped where the terminal is narrower than their last column."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from logsparse.commands.options import print_table

Printed = Callable[[int | None], list[str]]
NOTE = "stands in for another set; a training came apart before its end"
ROWS = [["traffic", "0.1", NOTE], ["m4", "12.5", "-"]]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Printed:
    def on(columns: int | None) -> list[str]:
        """Print on a terminal of this width; None: into a file."""
        monkeypatch.setattr(sys.stdout, "isatty", lambda: columns is not None)
        monkeypatch.setenv("COLUMNS", str(columns or 10))
        print_table(["case", "R0.5", "note"], ROWS)
        return capsys.readouterr().out.splitlines()

    return on


def test_a_wide_terminal_and_a_file_have_one_line_per_row(printed: Printed) -> None:
    whole = ["case     R0.5  note", f"traffic   0.1  {NOTE}", "m4       12.5  -"]
    assert printed(None) == whole
    assert printed(15 + len(NOTE)) == whole


def test_on_a_narrower_terminal_the_last_column_is_wrapped_below_itself(printed: Printed) -> None:
    assert printed(60) == [
        "case     R0.5  note",
        "traffic   0.1  stands in for another set; a training came",
        "               apart before its end",
        "m4       12.5  -",
    ]


def test_with_no_room_beside_the_others_it_has_lines_of_its_own(printed: Printed) -> None:
    assert printed(38) == [
        "case     R0.5  note",
        "traffic   0.1",
        "    stands in for another set; a",
        "    training came apart before its end",
        "m4       12.5  -",
    ]
