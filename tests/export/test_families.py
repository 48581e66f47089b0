"""Every family of components exports, also where ONNX lacks what its densities need of the parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dsui.families.family import Family
from dsui.families.registry import FAMILIES
from tests.support.untrained_runs import check_export, untrained

SIZE = 8
CASES: dict[str, dict[str, Any]] = {
    "gaussian": {"length": "density", "doubles": "turns"},
    "gaussian-tied": {"covariance": "tied", "doubles": "turns"},
    "gaussian-low-rank": {"covariance": "low-rank", "rank": 3, "components": 2, "doubles": "turns"},
    "student-t": {"family": "student-t", "components": 2, "length": "density"},
    "von-mises-fisher": {"family": "von-mises-fisher", "components": 2, "doubles": "turns"},
}
"""With doubles, whose turned classes are left out, a family has to give the densities of some classes alone."""


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_exports_with_what_else_a_layer_may_have(name: str) -> None:
    predictor = untrained("small", SIZE, **CASES[name])
    for family in (each for each in predictor.model.method.modules() if isinstance(each, Family)):
        for values in family.parameters():
            values.data += 0.1 * torch.randn_like(values)  # so that classes differ
    check_export(predictor)
