from __future__ import annotations

import mpmath
import torch

from dsui.evaluation import scores


def test_scores_are_their_formulas() -> None:
    torch.manual_seed(0)
    logits = torch.randn(20, 7, dtype=torch.float64)
    p = logits.softmax(1)
    torch.testing.assert_close(scores.max_probability(logits), torch.log(1 - p.amax(1)))
    torch.testing.assert_close(scores.entropy(logits), torch.log(-(p * p.log()).sum(1)))
    torch.testing.assert_close(scores.energy(logits), -logits.exp().sum(1).log())
    torch.testing.assert_close(scores.log_density(logits), -logits.exp().sum(1).log())


def test_saturated_probabilities_are_ranked_without_ties() -> None:
    """At logit gaps of 40 to 400 every float64 softmax is exactly one-hot; the scores still tell the samples apart."""
    gaps = torch.linspace(40, 400, 1000)
    logits = torch.stack([gaps, torch.zeros(1000), torch.zeros(1000)], 1)
    assert len(logits.double().softmax(1).amax(1).unique()) == 1
    for score in (scores.max_probability, scores.entropy):
        found = score(logits)
        assert len(found.unique()) == 1000
        assert bool((found.diff() < 0).all()), "a larger gap is more certain"


def test_a_saturated_entropy_keeps_its_digits() -> None:
    with mpmath.workdps(300):  # 1 - p is e^-600 at the largest gap
        for gap in (0.1, 5, 36, 80, 600):
            odds = mpmath.e ** (-gap)
            p = 1 / (1 + odds)
            truth = mpmath.log(-(p * mpmath.log(p) + (1 - p) * mpmath.log(1 - p)))
            found = scores.entropy(torch.tensor([[float(gap), 0.0]], dtype=torch.float64))
            assert abs(float(found) - float(truth)) < 1e-12 * abs(float(truth))
