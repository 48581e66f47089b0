"""Whether a claim of the paper holds for the committed rows, by one rule.

A claim fails once more of its checks fail than it allows. Else it is not run yet while a cell or a rival of it has no
rows, and it holds when all have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dsui.report.columns import SCORES
from dsui.report.metric_formats import METRICS
from studies.paper_cells import Standing, place_name

HOLDS, FAILS, NOT_RUN = "holds", "fails", "not run yet"


class Check(NamedTuple):
    """`holds` is None where nothing can be said yet. `whole`: whether every rival has rows. `decides`:
    the cell behind it, where there is one."""

    holds: bool | None
    whole: bool
    decides: Standing | None = None


class Verdict(NamedTuple):
    """`word`: HOLDS, FAILS, or NOT_RUN with its counts. `figures`: what it rests on; empty without rows."""

    word: str
    figures: str

    @property
    def text(self) -> str:
        return f"**{self.word}**: {self.figures}" if self.figures else f"**{self.word}**"


def judge(checks: Sequence[Check], what: str = "cells", allowed: int = 0) -> Verdict:
    """The verdict on a claim, with the figures it rests on."""
    run = [check for check in checks if check.holds is not None]
    failed = [check for check in run if not check.holds]
    open_checks = [check for check in checks if check.holds is None or not check.whole]
    if len(failed) > allowed:
        word = FAILS
    else:
        word = f"{NOT_RUN}: {len(open_checks)} of {len(checks)} {what}" if open_checks else HOLDS
    if not run:
        return Verdict(word, "")
    counted = f"true in {len(run) - len(failed)} of the {len(run)} {what} run ({len(checks)} in all)"
    deciding = [check.decides for check in failed or run if check.decides is not None]
    least = min(deciding, key=lambda each: each.difference, default=None)
    if least is None:
        return Verdict(word, counted)
    return Verdict(word, f"{counted}; smallest difference {describe(least)}")


def describe(cell: Standing) -> str:
    """A difference to the best rival with its interval and its place."""
    measure = METRICS[cell.figure.metric].title
    if cell.figure.metric != "accuracy":
        measure = f"{measure} of {SCORES[cell.figure.score or '']}"
    return f"{difference_text(cell)} against {cell.rival} in {measure}, {place_name(cell.figure)}"


def difference_text(cell: Standing) -> str:
    """ "+1.44 (+0.98 to +1.90)" in points; without an interval where one of the two has a single run."""
    interval = cell.interval
    return f"{100 * cell.difference:+.2f}" + (
        "" if interval is None else f" ({100 * interval.low:+.2f} to {100 * interval.high:+.2f})"
    )
