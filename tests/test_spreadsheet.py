from __future__ import annotations

import csv
import io

import pytest

from dsui.spreadsheet import to_csv


def cells(*values: object) -> list[str]:
    (row,) = csv.reader(io.StringIO(to_csv([values]), newline=""))
    return row


@pytest.mark.parametrize(
    "text", ["=1+1", '=HYPERLINK("x")', "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "-cmd|' /C calc'!A0"]
)
def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    assert cells(text) == [f"'{text}"]


def test_numbers_and_other_text_stay_as_they_are() -> None:
    given = [-0.5, 3, None, True, "-0.5", "+3e-2", "-inf", "a=b", "'quoted", "", 'π, "x"\ny']
    assert cells(*given) == ["-0.5", "3", "", "True", "-0.5", "+3e-2", "-inf", "a=b", "'quoted", "", 'π, "x"\ny']


def test_every_csv_comes_from_here() -> None:
    from tests.support.fences import ROOT

    sources = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}
    assert [name for name, text in sources.items() if "csv.writer" in text or "DictWriter" in text] == [
        "spreadsheet.py"
    ]
