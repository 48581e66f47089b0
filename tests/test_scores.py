from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mpmath
import pytest
import torch
from torch import Tensor

from dsui import scores
from dsui.evaluation.metrics import auroc, ties
from dsui.outputs import Outputs
from dsui.report.run_section import FOREIGN_SCORES
from dsui.score_table import NAMES, SIRC, TABLE, is_variant

torch.manual_seed(0)
LOGITS = torch.randn(400, 7, dtype=torch.float64)
P = LOGITS.softmax(1)


def test_scores_are_their_formulas() -> None:
    torch.testing.assert_close(scores.max_probability(LOGITS), torch.log(1 - P.amax(1)))
    torch.testing.assert_close(scores.entropy(LOGITS), torch.log(-(P * P.log()).sum(1)))
    torch.testing.assert_close(scores.energy(LOGITS), -LOGITS.exp().sum(1).log())
    torch.testing.assert_close(scores.max_logit(LOGITS), -LOGITS.amax(1))
    torch.testing.assert_close(scores.log_density(LOGITS), -LOGITS.exp().sum(1).log())
    floored = LOGITS.exp() + math.exp(-0.5)
    best = (floored / floored.sum(1, keepdim=True)).amax(1)
    torch.testing.assert_close(scores.floored_posterior(LOGITS, -0.5), torch.log(1 - best))
    confidence = LOGITS[:, 0]  # S; the secondary uncertainty is -S, of mean -m
    m, s = 0.3, 0.7
    sirc = (1 - P.amax(1)) * (1 + torch.exp(-(confidence - (m - 3 * s)) / s))
    torch.testing.assert_close(scores.sirc(LOGITS, -confidence, -m, s), sirc.log())


def exact(gap: float, others: int) -> tuple[float, float]:
    """ln(1 - max p) and ln H of logits (gap, 0, ..., 0)."""
    with mpmath.workdps(50 + int(gap)):  # 1 - p is about e^-gap
        odds = others * mpmath.e ** (-mpmath.mpf(gap))
        p, rest = 1 / (1 + odds), mpmath.e ** (-mpmath.mpf(gap)) / (1 + odds)
        entropy = -(p * mpmath.log(p) + others * rest * mpmath.log(rest))
        return float(mpmath.log(others * rest)), float(mpmath.log(entropy))


@pytest.mark.parametrize("gap", [0.1, 5.0, 8.0, 20.0, 36.0, 39.9, 40.1, 80.0, 600.0, 720.0, 800.0, 1e4])
@pytest.mark.parametrize("others", [1, 9])
def test_saturated_scores_keep_their_digits(gap: float, others: int) -> None:
    """At 720 the odds are subnormal in float64, at 800 they are 0: only their logarithm is left."""
    logits = torch.tensor([[gap] + others * [0.0]], dtype=torch.float64)
    for score, truth in zip((scores.max_probability, scores.entropy), exact(gap, others), strict=True):
        assert float(score(logits)) == pytest.approx(truth, rel=1e-13)  # a few roundings of float64


@pytest.mark.parametrize("size", [1e3, 1e4])
def test_a_saturated_model_makes_no_ties(size: float) -> None:
    """2,000 samples whose float64 softmax is one-hot; its maximum would tie nearly all of them."""
    logits = size * torch.randn(2000, 10, generator=torch.Generator().manual_seed(0))
    assert ties(1 - logits.double().softmax(1).amax(1)) > 1800
    first, second = logits.topk(2).values.double().unbind(1)
    assert ties(first - second) == 0
    found = scores.all_scores(Outputs(logits, logits, class_scores=logits, log_joint=logits, norm=first), REFERENCE)
    flat = {name: ties(values) for name, values in found.items() if ties(values)}
    assert flat == {}


@pytest.mark.parametrize("score", [scores.max_probability, scores.entropy])
def test_a_larger_gap_is_more_certain_at_any_saturation(score: Callable[[Tensor], Tensor]) -> None:
    gaps = torch.linspace(0, 2000, 20_001)
    logits = torch.stack([gaps, torch.zeros_like(gaps), torch.zeros_like(gaps)], 1)
    assert bool((score(logits).diff() < 0).all())


REFERENCE = scores.Reference({name: scores.Moments(-1.0, 2.0) for name in scores.SECONDARY}, -1e5)


def test_a_class_without_probability_is_none_at_all() -> None:
    with_none = torch.cat([LOGITS, torch.full((len(LOGITS), 1), -math.inf)], 1)
    for score in (scores.max_probability, scores.entropy, scores.energy):
        torch.testing.assert_close(score(with_none), score(LOGITS))


def test_nan_stays_nan() -> None:
    """`rank` refuses it; a score that turned it into a number would hide a broken model."""
    broken = LOGITS.clone()
    broken[3, 2] = math.nan
    for score in (scores.max_probability, scores.entropy, scores.energy):
        assert score(broken).isnan().tolist() == [row == 3 for row in range(len(LOGITS))]


def test_logits_on_the_sphere_are_those_of_features_stretched_to_its_radius() -> None:
    generator = torch.Generator().manual_seed(0)
    h, weight = (torch.randn(size, 5, dtype=torch.float64, generator=generator) for size in (20, 3))
    norm = h.norm(dim=1)
    assert norm.min() < math.sqrt(5) < norm.max()
    inside = h * (math.sqrt(5) / norm).clamp(max=1)[:, None]
    outputs = Outputs(inside, inside @ weight.T, norm=norm, weight=weight)
    z = math.sqrt(5) * h / norm[:, None]
    found = scores.sphere_logits(outputs)
    assert found is not None
    torch.testing.assert_close(found, z @ weight.T)
    assert scores.sphere_logits(Outputs(h, h @ weight.T, weight=weight)) is None
    every = scores.all_scores(outputs, scores.reference([outputs]))
    assert torch.equal(every["uncertainty"], every["sirc_sphere_energy"])
    assert not torch.equal(every["uncertainty"], every["sirc_energy"])


def test_equal_logits_are_the_most_uncertain_there_are() -> None:
    flat = torch.zeros(1, 7)
    assert float(scores.max_probability(flat)) == pytest.approx(math.log(6 / 7))
    assert float(scores.entropy(flat)) == pytest.approx(math.log(math.log(7)))
    for score in (scores.max_probability, scores.entropy):
        assert bool((score(LOGITS) < score(flat)).all())


def test_sirc_is_max_probability_where_the_secondary_is_very_in_domain() -> None:
    usual = scores.max_probability(LOGITS)
    deep = torch.full((len(LOGITS),), -100.0)
    torch.testing.assert_close(scores.sirc(LOGITS, deep, 0.0, 1.0), usual, rtol=0, atol=1e-15)  # softplus(-103)
    inside = scores.sirc(LOGITS, torch.zeros(len(LOGITS)), 0.0, 1.0) - usual
    assert float(inside.max()) == pytest.approx(math.log1p(math.exp(-3)))  # three deviations inside
    far = scores.sirc(LOGITS, torch.full((len(LOGITS),), 1003.0), 0.0, 1.0) - usual
    torch.testing.assert_close(far, torch.full_like(far, 1000.0))  # softplus(x) = x


def passes(spread: float, count: int = 5) -> Tensor:
    noise = torch.randn(len(LOGITS), count, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return (LOGITS.unsqueeze(1) + spread * noise).log_softmax(2)


def test_mutual_information_is_total_minus_expected_entropy_and_never_negative() -> None:
    samples = passes(1.0)
    p, mean = samples.exp(), samples.exp().mean(1)
    expected = -(mean * mean.log()).sum(1) + (p * p.log()).sum(2).mean(1)
    torch.testing.assert_close(scores.mutual_information(samples), expected)
    assert float(scores.mutual_information((100 * samples).log_softmax(2)).min()) >= 0
    assert float(scores.mutual_information(passes(0.0)).max()) < 1e-15  # equal passes: a rounding of H
    certain = torch.full((1, 3, 2), -math.inf)
    certain[0, :, 0] = 0
    assert scores.mutual_information(certain).tolist() == [0.0]
    certain[0, 2] = certain[0, 2].flip(0)  # one of three passes is as sure of the other class
    third = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    assert float(scores.mutual_information(certain)) == pytest.approx(float(-(third * third.log()).sum()))


def test_floored_posterior_is_the_posterior_far_above_the_floor_and_uniform_far_below() -> None:
    torch.testing.assert_close(scores.floored_posterior(LOGITS, -1e3), scores.max_probability(LOGITS))
    flat = torch.full((len(LOGITS),), math.log(6 / 7), dtype=torch.float64)
    torch.testing.assert_close(scores.floored_posterior(LOGITS - 1e3, 0.0), flat)


def outputs(log_joint: Tensor) -> Outputs:
    return Outputs(log_joint, log_joint, log_joint=log_joint, norm=log_joint.norm(dim=1))


def test_reference_does_not_depend_on_the_chunks() -> None:
    whole = scores.reference([outputs(LOGITS)])
    parts = [outputs(part) for part in LOGITS.split([1, 150, 7, 242])]
    assert scores.reference(parts) == whole
    assert whole.moments["energy"].mean == pytest.approx(float(scores.energy(LOGITS).mean()))
    assert whole.moments["energy"].deviation == pytest.approx(float(scores.energy(LOGITS).std()))
    assert whole.log_floor == float(LOGITS.amax(1).sort().values[4])  # 4 of 400, 1 %, lie below it


def test_a_model_without_a_density_has_its_other_scores() -> None:
    plain = Outputs(LOGITS, LOGITS)
    found = scores.all_scores(plain, scores.reference([plain]))
    plain_names = {"max_probability", "entropy", "max_logit", "energy", "sirc_energy", "uncertainty", "foreignness"}
    assert set(found) == plain_names
    assert torch.equal(found["uncertainty"], found["sirc_energy"])
    assert torch.equal(found["foreignness"], found["energy"])


def test_foreignness_is_the_energy_of_the_mixtures_where_there_are_any() -> None:
    home = replace(two_blobs(50, False), samples=None)
    found = scores.all_scores(home, scores.reference([home]))
    assert torch.equal(found["foreignness"], found["density_energy"])
    assert home.class_scores is not None
    torch.testing.assert_close(found["foreignness"], -home.class_scores.double().logsumexp(1))
    samples = replace(two_blobs(50, False), class_scores=None, log_joint=None, norm=None)
    assert "foreignness" not in scores.all_scores(samples, scores.reference([samples]))


def test_what_a_method_alone_knows_is_a_score_and_wins_over_one_made_of_its_samples() -> None:
    own = {"vacuity": torch.rand(len(LOGITS)), "mutual_information": torch.rand(len(LOGITS))}
    whole = Outputs(LOGITS, LOGITS, samples=passes(1.0), own=own)
    found = scores.all_scores(whole, scores.reference([whole]))
    assert torch.equal(found["vacuity"], own["vacuity"].double())
    assert torch.equal(found["mutual_information"], own["mutual_information"].double())
    without = Outputs(LOGITS, LOGITS, samples=passes(1.0))
    fresh = scores.all_scores(without, scores.reference([without]))["mutual_information"]
    assert torch.equal(fresh, scores.mutual_information(passes(1.0)))


def test_log_probabilities_of_a_sampling_method_have_no_energy() -> None:
    """It would be the rounding of ln 1, and what is divided by its deviation would be noise."""
    samples = passes(1.0)
    mean = Outputs(LOGITS, scores.log_mean_exp(samples), samples=samples)
    assert float(scores.energy(mean.logits).abs().max()) < 1e-14
    found = scores.all_scores(mean, scores.reference([mean]))
    assert set(found) == {"max_probability", "entropy", "max_logit", "mutual_information", "uncertainty"}
    assert torch.equal(found["uncertainty"], found["max_probability"])


def two_blobs(count: int, foreign: bool) -> Outputs:
    """A classifier of two Gaussians at (+-3, 2); foreign samples are near the origin, faint and between the classes."""
    generator = torch.Generator().manual_seed(int(foreign))
    noise = 0.5 * torch.randn(count, 2, dtype=torch.float64, generator=generator)
    centres = torch.tensor([[-3.0, 2.0], [3.0, 2.0]], dtype=torch.float64)
    z = noise if foreign else noise + centres[torch.arange(count) % 2]
    log_joint = -2 * torch.cdist(z, centres).square()
    logits = z @ centres.T
    jitter = torch.randn(count, 8, 2, dtype=torch.float64, generator=generator)
    samples = (logits.unsqueeze(1) + jitter).log_softmax(2)
    return Outputs(
        z, logits, norm=z.norm(dim=1), class_scores=log_joint / 2, log_joint=log_joint, samples=samples, weight=centres
    )


def every_score(images: Outputs, training: Outputs) -> dict[str, Tensor]:
    """Those of one pass and those of several."""
    single, training_single = replace(images, samples=None), replace(training, samples=None)
    found = scores.all_scores(images, scores.reference([training]))
    return found | scores.all_scores(single, scores.reference([training_single]))


def test_every_score_increases_with_foreignness_on_a_toy_problem() -> None:
    home, foreign = two_blobs(500, False), two_blobs(500, True)
    ours, theirs = every_score(home, home), every_score(foreign, home)
    assert len(ours) == 20
    positive = torch.arange(1000) >= 500
    weak = {
        name: figure
        for name in ours
        if (figure := auroc(torch.cat([ours[name], theirs[name]]), positive)) < 0.99  # 1 when written
    }
    assert weak == {}


def test_a_misspelled_score_differs_from_one_that_only_a_method_has() -> None:
    assert scores.is_misspelled("entropyy")
    assert scores.is_misspelled("mutual_informatoin")
    assert scores.is_misspelled("relative_mahalanobs", ["relative_mahalanobis"])
    for name in (*NAMES, "knn", "normalized", "logit_norm", "diffusion", "differential_entropy"):
        assert not scores.is_misspelled(name), name


def test_all_scores_stand_in_the_order_of_the_table_with_a_methods_own_before_the_secondary_ones() -> None:
    home = replace(two_blobs(50, False), own={"vacuity": torch.rand(50)})
    found = list(scores.all_scores(home, scores.reference([home])))
    first = next(place for place, score in enumerate(TABLE) if score.secondary)
    order = [*NAMES[:first], "vacuity", *NAMES[first:]]
    assert found == [name for name in order if name not in {"energy", "sirc_energy"}]  # which sampling leaves out
    single = replace(home, samples=None, own={})
    assert [*scores.all_scores(single, scores.reference([single]))] == [
        name for name in NAMES if name != "mutual_information"
    ]


def test_the_table_and_the_formulas_have_the_same_names() -> None:
    assert [*scores.PLAIN, *scores.SECONDARY, "uncertainty", "foreignness"] == [
        name for name in NAMES if not name.startswith(SIRC)
    ]
    assert list(scores.SECONDARY) == [score.name for score in TABLE if score.secondary]


def test_the_table_is_read_without_pytorch() -> None:
    """Completion of the command line reads it."""
    code = "import sys; from dsui.score_table import NAMES; print('torch' in sys.modules, len(NAMES))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", str(len(NAMES))]


def test_every_score_is_described_in_the_documentation() -> None:
    page = (Path(__file__).parents[1] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    described = page[page.index("## Scores") : page.index("## Detectors")]
    assert [name for name in NAMES if f"`{name.replace(SIRC, '')}`" not in described] == []


def test_scores_that_reports_choose_are_scores_of_the_table() -> None:
    assert set(FOREIGN_SCORES) <= set(NAMES)


def test_joint_scores_and_variants_are_no_usual_scores() -> None:
    usual = [name for name in NAMES if not is_variant(name)]
    assert usual == [
        *("max_probability", "entropy", "density_max_probability", "mutual_information"),
        *("energy", "log_density", "uncertainty", "foreignness"),
    ]
    assert is_variant("sirc_knn")
    assert not is_variant("knn")
