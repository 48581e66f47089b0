"""OpenMax and its Weibull distributions against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import weibull_min

from dsui.detectors.openmax import OpenMax
from dsui.outputs import Outputs
from dsui.weibull import Weibull, fit_weibull
from tests.support.toy_features import CLASSES, classified, faint, in_domain, spiked

TEST = Outputs.concatenated([classified(in_domain(8, 1).features), faint(40), spiked(40)])


def tails(seed: int = 0) -> np.ndarray:
    found: np.ndarray = weibull_min.rvs([[0.7], [2.0], [15.0]], scale=3, size=(3, 20), random_state=seed)
    return found


def test_the_fit_is_at_least_as_likely_as_scipys_and_near_it() -> None:
    x = tails()
    ours = fit_weibull(torch.from_numpy(x), torch.ones(3, 20, dtype=torch.bool))
    for row, shape, scale in zip(x, ours.shape.tolist(), ours.scale.tolist(), strict=True):
        their_shape, _, their_scale = weibull_min.fit(row, floc=0)
        assert shape == pytest.approx(their_shape, rel=1e-3)  # scipy's simplex stops after four digits
        assert scale == pytest.approx(their_scale, rel=1e-3)
        likelihoods = [weibull_min.logpdf(row, k, 0, s).sum() for k, s in ((shape, scale), (their_shape, their_scale))]
        assert likelihoods[0] >= likelihoods[1] - 1e-12


def test_masked_values_do_not_count() -> None:
    x, mask = torch.from_numpy(tails()), torch.ones(3, 20, dtype=torch.bool)
    mask[:, 15:] = False
    ours, short = fit_weibull(x, mask), fit_weibull(x[:, :15], mask[:, :15])
    torch.testing.assert_close(ours, short, rtol=1e-12, atol=0)  # float64


def test_the_cdf_is_scipys_and_zero_left_of_zero() -> None:
    x = torch.linspace(-1, 9, 101, dtype=torch.float64)[:, None].expand(-1, 3)
    shape, scale = torch.tensor([0.7, 2.0, 15.0]).double(), torch.tensor([1.0, 3.0, 4.0]).double()
    found = Weibull(shape, scale).cdf(x)
    torch.testing.assert_close(found, torch.from_numpy(weibull_min.cdf(x, shape, 0, scale)), rtol=1e-12, atol=1e-15)
    assert bool((found[x <= 0] == 0).all())
    assert bool((found.diff(dim=0) >= 0).all())


def test_a_tail_of_equal_values_is_a_step() -> None:
    step = fit_weibull(torch.full((1, 5), 2.0, dtype=torch.float64), torch.ones(1, 5, dtype=torch.bool))
    assert step.cdf(torch.tensor([[1.99], [2.01]], dtype=torch.float64)).flatten().tolist() == [0, 1]


@pytest.mark.parametrize("variant", ["openmax", "neal"])
def test_scores_are_those_of_a_plain_loop_with_scipy(variant: str) -> None:
    train = in_domain(30)
    assert train.labels is not None
    train.labels[:8], train.labels[30:50] = 1, 2  # wrong labels: fewer correct samples than the tail has in class 1
    y, labels = train.logits.numpy(), train.labels.numpy()
    groups = [y[(labels == c) & (y.argmax(1) == c)] for c in range(CLASSES)]
    means = [group.mean(0) for group in groups]
    tail = [np.sort(np.linalg.norm(g - m, axis=1))[-20:] for g, m in zip(groups, means, strict=True)]
    assert min(map(len, tail)) == 10
    weibulls = [weibull_min.fit(far - far.min() + 1, floc=0) for far in tail]
    expected = []
    for row in TEST.logits.numpy():
        strange = [
            weibull_min.cdf(np.linalg.norm(row - mean) - far.min() + 1, *weibull)
            for mean, far, weibull in zip(means, tail, weibulls, strict=True)
        ]
        shifted, known, unknown = row - row.min(), row - row.min(), 0.0
        for place, label in enumerate(np.argsort(-shifted)[:3]):
            given = shifted[label] * strange[label] * (3 - place) / 3
            known[label] -= given
            unknown += given
        if variant == "neal":
            expected.append(-np.log(np.exp(row * (1 - np.array(strange))).sum()))
        else:
            expected.append(unknown - np.log(np.exp(known).sum()))
    found = OpenMax(tail=20, alpha=3, variant=variant).fit(train).score(TEST)  # type: ignore[arg-type]
    torch.testing.assert_close(
        found, torch.tensor(expected), rtol=1e-2, atol=1e-2
    )  # scipy's four digits in an exponent


def test_scores_do_not_depend_on_a_constant_added_to_all_logits() -> None:
    """Logits below 0 are discounted no less than others."""
    train, test = in_domain(30), TEST
    moved = [Outputs(part.features, part.logits - 50, part.labels) for part in (train, test)]
    found = OpenMax().fit(moved[0]).score(moved[1])
    torch.testing.assert_close(found, OpenMax().fit(train).score(test), rtol=1e-6, atol=1e-6)  # squared-out distances
