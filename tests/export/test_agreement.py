"""What counts as agreement: every limit, from both of its sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dsui.errors import DsuiError
from dsui.export.agreement import DECISIVE, LOG_DENSITY, PROBABILITY, check_agreement
from dsui.limits import Limit

LIMITS = (Limit("uncertainty", 2.0, "errors"), Limit("log_density", 500.0, "foreign images"))


def outputs() -> dict[str, NDArray[Any]]:
    """Three images; the second is accepted, the third has two equal probabilities."""
    return {
        "label": np.array([0, 1, 0]),
        "probabilities": np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]),
        "uncertainty": np.array([3.0, 1.0, 2.5]),
        "log_density": np.array([-400.0, -300.0, -600.0]),
        "accepted": np.array([False, True, False]),
    }


def test_equal_outputs_agree() -> None:
    found = check_agreement(outputs(), outputs(), LIMITS)
    assert (found.images, found.probability, found.undecided) == (3, 0.0, 0)
    assert found.relative == {"uncertainty": 0.0, "log_density": 0.0}


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("label", 0, 1),
        ("probabilities", (0, 0), 0.9 + 2 * PROBABILITY),
        ("log_density", 0, -400 * (1 + 2 * LOG_DENSITY)),
        ("uncertainty", 0, 3.01),
        ("uncertainty", 1, np.nan),
        ("accepted", 1, False),
    ],
)
def test_what_differs_by_more_than_it_may_is_refused(name: str, place: Any, value: float) -> None:
    broken = outputs()
    broken[name][place] = value
    with pytest.raises(DsuiError, match="the exported graph does not compute what the run computes"):
        check_agreement(outputs(), broken, LIMITS)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("label", 2, 1),
        ("probabilities", (0, 0), 0.9 + PROBABILITY / 2),
        ("log_density", 0, -400 * (1 + LOG_DENSITY / 2)),
    ],
)
def test_what_differs_by_less_agrees(name: str, place: Any, value: float) -> None:
    other = outputs()
    other[name][place] = value
    check_agreement(outputs(), other, LIMITS)


@pytest.mark.parametrize(
    ("name", "threshold", "sign"), [("uncertainty", 2.0, 1), ("log_density", 500.0, -1)], ids=["score", "density"]
)
def test_a_decision_may_differ_only_beside_the_threshold(name: str, threshold: float, sign: int) -> None:
    wanted = outputs()
    wanted[name][1] = sign * threshold * (1 + DECISIVE / 2)
    other = {key: values.copy() for key, values in wanted.items()}
    other["accepted"][1] = False
    assert check_agreement(wanted, other, LIMITS).undecided == 1
    wanted[name][1] = other[name][1] = sign * threshold * (1 - 3 * DECISIVE)
    with pytest.raises(DsuiError, match="decisions differ for 1 of 3 images"):
        check_agreement(wanted, other, LIMITS)


def test_outputs_of_another_kind_are_refused() -> None:
    other = outputs()
    del other["accepted"]
    with pytest.raises(DsuiError, match="only one of them has accepted"):
        check_agreement(outputs(), other, LIMITS)
