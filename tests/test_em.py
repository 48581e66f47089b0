from __future__ import annotations

import warnings
from itertools import pairwise

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from dsui import em

FLOOR = 1e-6


def blobs(classes: int, per_class: int, width: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Three well separated clumps per class."""
    generator = torch.Generator().manual_seed(seed)
    centres = 6 * torch.randn(classes, 3, width, generator=generator, dtype=torch.float64)
    y = torch.arange(classes).repeat_interleave(per_class)
    clump = torch.arange(len(y)) % 3
    z = centres[y, clump] + torch.randn(len(y), width, generator=generator, dtype=torch.float64)
    shuffled = torch.randperm(len(y), generator=generator)
    return z[shuffled], y[shuffled]


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("chunk", [em.CHUNK_ELEMENTS, 50])
def test_steps_equal_scikit_learn_from_the_same_start(steps: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(em, "CHUNK_ELEMENTS", chunk)
    z, y = blobs(classes=3, per_class=60, width=4, seed=0)
    kept = (y == 0) | (torch.arange(len(y)) % (y + 1) == 0)  # unequal classes, the last one the smallest
    z, y = z[kept], y[kept]
    samples = em.ClassSamples(z, y, 3)
    seeds = em.seed_means(samples, 3, torch.Generator().manual_seed(1))
    mixtures = em.Mixtures(torch.full((3, 3), 1 / 3, dtype=torch.float64), seeds, torch.ones_like(seeds))
    for _ in range(steps):
        mixtures, _ = em.step(samples, mixtures, FLOOR)
    for label in range(3):
        oracle = GaussianMixture(
            3,
            covariance_type="diag",
            reg_covar=0,
            tol=0,
            max_iter=steps,
            means_init=seeds[label].numpy(),
            weights_init=[1 / 3] * 3,
            precisions_init=torch.ones_like(seeds[label]).numpy(),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            oracle.fit(z[y == label].numpy())
        for ours, theirs in (
            (mixtures.weights[label], oracle.weights_),
            (mixtures.means[label], oracle.means_),
            (mixtures.variances[label], oracle.covariances_),
        ):
            torch.testing.assert_close(
                ours, torch.from_numpy(theirs), rtol=1e-8, atol=1e-8
            )  # float64, sums in another order


def test_fit_is_at_least_as_likely_as_the_best_of_five_scikit_learn_fits() -> None:
    z, y = blobs(classes=4, per_class=90, width=3, seed=2)
    samples = em.ClassSamples(z, y, 4)
    mixtures = em.fit(samples, 3, FLOOR, torch.Generator().manual_seed(0))
    _, likelihood = em.step(samples, mixtures, FLOOR)
    oracle = [
        GaussianMixture(3, covariance_type="diag", n_init=5, random_state=0)
        .fit(z[y == c].numpy())
        .score(z[y == c].numpy())
        for c in range(4)
    ]
    assert likelihood >= sum(oracle) / 4 - 2 * em.EM_TOLERANCE  # both stop within the tolerance of their optimum


def test_likelihood_never_falls() -> None:
    z, y = blobs(classes=2, per_class=50, width=5, seed=3)
    samples = em.ClassSamples(z, y, 2)
    seeds = em.seed_means(samples, 4, torch.Generator().manual_seed(0))
    mixtures = em.Mixtures(torch.full((2, 4), 0.25, dtype=torch.float64), seeds, torch.ones_like(seeds))
    history = []
    for _ in range(15):
        mixtures, likelihood = em.step(samples, mixtures, FLOOR)
        history.append(likelihood)
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(history))


def test_a_dead_component_is_moved_onto_samples_and_lives() -> None:
    z, y = blobs(classes=2, per_class=60, width=3, seed=4)
    samples = em.ClassSamples(z, y, 2)
    good = em.fit(samples, 3, FLOOR, torch.Generator().manual_seed(0))
    means, weights = good.means.clone(), good.weights.clone()
    means[0, 1], weights[0, 1] = 1e3, 1e-9  # nobody's mean
    stranded = em.Mixtures(weights, means, good.variances)
    stranded, _ = em.step(samples, stranded, FLOOR)
    assert stranded.weights[0, 1] * 60 < em.DEAD
    revived = em.maximise(samples, stranded, FLOOR, torch.Generator().manual_seed(0))
    assert float((revived.weights * 60).min()) >= em.DEAD
    assert float(revived.means.abs().max()) < 100


def test_seeds_are_samples_and_spread_over_the_clumps() -> None:
    z, y = blobs(classes=3, per_class=90, width=6, seed=5)
    seeds = em.seed_means(em.ClassSamples(z, y, 3), 3, torch.Generator().manual_seed(0))
    for label in range(3):
        distances = torch.cdist(seeds[label], z[y == label], compute_mode="donot_use_mm_for_euclid_dist")
        assert float(distances.amin(1).max()) < 1e-9
        assert float(torch.pdist(seeds[label]).min()) > 3  # clumps have deviation 1 and lie some 14 apart


def test_draws_are_proportional_to_squared_distance() -> None:
    z = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    samples = em.ClassSamples(z, torch.zeros(3, dtype=torch.int64), 1)
    generator = torch.Generator().manual_seed(0)
    means, chosen = torch.zeros(1, 1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    draws = torch.stack([em.draw_far_sample(samples, means, chosen, generator)[0, 0] for _ in range(2000)])
    share = float((draws == 2).double().mean())
    assert float((draws == 0).double().sum()) == 0
    assert abs(share - 4 / 5) < 0.04  # four deviations of a binomial share at n = 2000


def test_identical_samples_and_more_components_than_samples_stay_finite() -> None:
    z = torch.ones(5, 3, dtype=torch.float64)
    for count in (5, 2):
        samples = em.ClassSamples(z[:count], torch.zeros(count, dtype=torch.int64), 1)
        mixtures = em.fit(samples, 4, 1e-3, torch.Generator().manual_seed(0))
        assert bool(mixtures.means.isfinite().all())
        assert float(mixtures.variances.min()) >= 1e-3
        assert float(mixtures.weights.sum()) == pytest.approx(1)


def test_a_weighted_sample_counts_as_that_many_samples() -> None:
    z, y = blobs(classes=3, per_class=30, width=4, seed=0)
    copies = torch.arange(len(z)) % 4 + 1
    weighted = em.ClassSamples(z, y, 3, copies.double())
    repeated = em.ClassSamples(z.repeat_interleave(copies, 0), y.repeat_interleave(copies), 3)
    assert weighted.mass.tolist() == repeated.counts.tolist()
    seeds = em.seed_means(weighted, 3, torch.Generator().manual_seed(1))
    start = em.Mixtures(torch.full((3, 3), 1 / 3, dtype=torch.float64), seeds, torch.ones_like(seeds))
    ours, theirs = (
        em.maximise(samples, start, FLOOR, torch.Generator().manual_seed(0)) for samples in (weighted, repeated)
    )
    for name in ("weights", "means", "variances"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-8, atol=1e-8)  # other sums


def test_a_heavy_sample_is_drawn_as_often_as_its_weight_says() -> None:
    z, y, weights = torch.eye(4, dtype=torch.float64), torch.zeros(4, dtype=torch.int64), torch.ones(4)
    weights[2] = 5
    samples = em.ClassSamples(z, y, 1, weights)
    none = torch.zeros(1, 1, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.cat([em.draw_far_sample(samples, samples.centre[:, None], none, generator) for _ in range(2000)])
    assert drawn.mean(0)[2].item() == pytest.approx(5 / 8, abs=0.033)  # three standard errors
