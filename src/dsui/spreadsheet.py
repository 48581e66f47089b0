"""CSV that a spreadsheet shows and never runs.

A cell that begins with =, +, -, @, a tab or a carriage return is a formula to spreadsheets, and names of files and
folders can come from anybody. Text like that gets an apostrophe in front, the usual remedy; numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(rows: Iterable[Iterable[object]]) -> str:
    """The rows as lines of CSV; None is an empty cell."""
    return "".join(map(_line, rows))


def _line(row: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow([_cell(value) for value in row])  # so it quotes both
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isprintable()
