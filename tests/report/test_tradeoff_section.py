"""The section about thresholds says which one is used, what it accepts, and what to do where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from dsui.deploy.scorer import ScoredSet
from dsui.deploy.tradeoff import Tradeoff, tradeoff
from dsui.limits import Criterion, Limit
from dsui.report.tradeoff_section import tradeoff_section
from dsui.runs.acceptance import Thresholds

RUN = Path("runs/my run")
CHOSEN = Thresholds((Limit("uncertainty", 8.0, "errors"),), Criterion(0.9), 0.91, 0.0, 100)


def traded(saved: bool, chosen: Thresholds | None = CHOSEN) -> Tradeoff:
    """Ten test images with scores 0 to 9, of which 8 and 9 are wrong; every other foreign image passes."""
    values = torch.arange(10, dtype=torch.float64)
    own = ScoredSet({"uncertainty": values}, values > 7)
    return tradeoff(own, {"noise": ScoredSet({"uncertainty": 2 * values}, values > 0)}, chosen, saved)


def test_the_saved_threshold_is_told_and_marked() -> None:
    section = tradeoff_section("run-1", RUN, traded(saved=True))
    assert section.paragraphs == [
        "The run keeps a threshold, by which dsui predict accepts: uncertainty up to 8, by coverage 0.9. It accepts "
        "90.0% of the test images and 50.0% of noise. Of the accepted test images 11.1% are predicted wrongly."
    ]
    errors, foreign = section.drawings
    assert "At a coverage of 90.0%: errors 11.1%. With every in-domain image accepted: errors 20.0%." in (
        errors.description
    )
    assert "At a coverage of 90.0%: noise 50.0%." in foreign.description
    for drawing in section.drawings:
        marks = [line for line in drawing.figure.axes[0].lines if line.get_marker() == "o"]
        assert [np.asarray(line.get_xdata()).tolist() for line in marks] == [[0.9]]
        assert "The dot is the threshold." in drawing.caption


def test_without_a_saved_one_the_page_says_how_to_save_one() -> None:
    (sentence,) = tradeoff_section("run-1", RUN, traded(saved=False)).paragraphs
    assert "No threshold is saved in this run." in sentence
    assert "dsui threshold 'runs/my run' --coverage 0.95 --save keeps it." in sentence


def test_without_calibration_images_nothing_is_marked() -> None:
    section = tradeoff_section("run-1", RUN, traded(saved=False, chosen=None))
    assert "train with --calibration 0.1" in section.paragraphs[0]
    assert not [line for each in section.drawings for line in each.figure.axes[0].lines if line.get_marker() == "o"]
    assert all("dot" not in drawing.caption for drawing in section.drawings)


def test_a_strict_threshold_is_still_within_the_figure() -> None:
    strict = replace(CHOSEN, limits=(Limit("uncertainty", 1.0, "errors"),))
    for drawing in tradeoff_section("run-1", RUN, traded(saved=True, chosen=strict)).drawings:
        assert drawing.figure.axes[0].get_xlim()[0] < 0.2
