"""Detectors on a GPU. Run there with `pytest tests/detectors`; elsewhere these tests have nothing to test."""

from __future__ import annotations

import pytest
import torch

from dsui.detectors.registry import build, names
from dsui.runs.temperature import fit_temperature
from tests.support.toy_features import faint, in_domain

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("name", names())
def test_scores_on_the_gpu_are_those_on_the_cpu(name: str) -> None:
    train, test = in_domain(60), faint(40)
    here, there = build(name).fit(train), build(name).fit(train.to("cuda"))
    found = there.score(test.to("cuda"))
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), here.score(test), rtol=1e-6, atol=1e-6)  # float64, other algorithms
    if here.needs_fit:
        with pytest.raises(ValueError, match="on cuda:0 and these outputs have 48 features and 5 classes on cpu"):
            there.score(test)


def test_the_temperature_on_the_gpu_is_that_on_the_cpu() -> None:
    train = in_domain(60)
    assert train.labels is not None
    logits = train.logits * torch.linspace(-0.1, 1, len(train))[:, None]
    there = fit_temperature(logits.cuda(), train.labels.cuda())
    assert there == pytest.approx(fit_temperature(logits, train.labels), rel=1e-9)  # float64 sums in another order
