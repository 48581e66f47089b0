"""Accuracy and calibration: are predictions of probability p correct in a share p of the cases?

p = softmax(logits) in float64. For a method that predicts probabilities, pass their logarithms as logits.
    NLL   = mean of -ln p_y
    Brier = mean of sum_c (p_c - [c = y])^2, in [0, 2] (Brier, 1950); for two classes twice the one-class form
    ECE   = sum over bins of (share of samples) |accuracy - mean confidence| (Naeini et al., AAAI 2015)
The bins of ECE are of equal width (Guo et al., ICML 2017) or, adaptive, of equal mass (Nixon et al., CVPR-W 2019).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dsui.checks import check_at_least, check_labels
from dsui.evaluation.selective import check_marked

BINS = 15
"""The number that Guo et al. use."""
SCALED = "scaled_"
"""Begins the name of a metric of probabilities that a temperature scaled."""
OF_PROBABILITIES = ("nll", "brier", "ece", "adaptive_ece", "confidence")
"""The metrics that a temperature changes."""


class ReliabilityBins(NamedTuple):
    """For each bin, least confident first: the number of samples, their mean confidence and accuracy (nan if
    empty). [bins]"""

    samples: Tensor
    confidence: Tensor
    accuracy: Tensor


def ece(confidence: Tensor, correct: Tensor, bins: int = BINS) -> float:
    """Expected calibration error over bins of equal width."""
    return _expected_error(reliability_bins(confidence, correct, bins))


def adaptive_ece(confidence: Tensor, correct: Tensor, bins: int = BINS) -> float:
    """Expected calibration error over bins of equal mass."""
    return _expected_error(reliability_bins(confidence, correct, bins, equal_mass=True))


def calibration_metrics(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy, NLL, Brier score and both calibration errors of the predicted class, of logits [N, C] and labels [N].

    The first of equal logits counts as the largest. The NLL is infinite if a label's logit is -infinity.
    """
    log_p = _log_probabilities(logits, labels)
    p = log_p.exp()
    correct = logits.argmax(1) == labels
    confidence = p.amax(1)
    label = labels.unsqueeze(1)
    distance = p.scatter(1, label, p.gather(1, label) - 1)
    return {
        "accuracy": float(correct.double().mean()),
        "nll": float(-log_p.gather(1, label).mean()),
        "brier": float(distance.square().sum(1).mean()),
        "ece": ece(confidence, correct),
        "adaptive_ece": adaptive_ece(confidence, correct),
    }


def stated_metrics(logits: Tensor, labels: Tensor, temperature: float | None = None) -> dict[str, float]:
    """What a model says of its own accuracy, and what guessing would give, of logits [N, C] and labels [N].

    `confidence` is the mean probability of the predicted class: above the accuracy the model is overconfident.
    `majority` is the share of the most frequent class, the accuracy of a model that always names it. With a temperature
    T also T itself and the figures of softmax(logits / T), as `scaled_nll` and so on; a T > 0 changes no label.
    """
    own = {
        "confidence": _mean_confidence(logits),
        "majority": int(labels.bincount().max()) / len(labels),
    }
    if temperature is None:
        return own
    scaled = logits.double() / temperature
    found = calibration_metrics(scaled, labels) | {"confidence": _mean_confidence(scaled)}
    return own | {"temperature": temperature, **{f"{SCALED}{name}": found[name] for name in OF_PROBABILITIES}}


def _mean_confidence(logits: Tensor) -> float:
    return float(logits.detach().double().softmax(1).amax(1).mean())


def reliability_bins(
    confidence: Tensor, correct: Tensor, bins: int = BINS, equal_mass: bool = False
) -> ReliabilityBins:
    """Sort samples into bins by their confidence in [0, 1].

    Of equal width: bin i holds (i / bins, (i + 1) / bins], the first bin also 0. Of equal mass: sizes differ by at most
    one, and samples of equal confidence share their hits evenly, so that the order of the samples does not matter.
    """
    check_at_least("bins", bins, 1)
    check_marked(confidence, correct)
    if bool(((confidence < 0) | (confidence > 1)).any()):
        raise ValueError("confidences must be probabilities, between 0 and 1.")
    confidence, hits = confidence.detach().double(), correct.double()
    if equal_mass:
        confidence, order = confidence.sort()
        _, group, sizes = torch.unique_consecutive(confidence, return_inverse=True, return_counts=True)
        hits = (hits.new_zeros(len(sizes)).index_add_(0, group, hits[order]) / sizes)[group]
        place = torch.arange(len(hits), device=hits.device) * bins // len(hits)
    else:
        place = torch.bucketize(confidence, torch.arange(1, bins, dtype=torch.float64, device=hits.device) / bins)
    samples, confidences, accuracies = (
        part.new_zeros(bins).index_add_(0, place, part) for part in (torch.ones_like(hits), confidence, hits)
    )
    return ReliabilityBins(samples, confidences / samples, accuracies / samples)


def _expected_error(bins: ReliabilityBins) -> float:
    gaps = (bins.accuracy - bins.confidence).abs()
    return float((bins.samples * gaps).nansum() / bins.samples.sum())


def _log_probabilities(logits: Tensor, labels: Tensor) -> Tensor:
    if logits.ndim != 2 or logits.numel() == 0:
        raise ValueError(
            f"logits have shape {list(logits.shape)}; at least one sample in [samples, classes] is needed."
        )
    check_labels(labels, *logits.shape)
    log_p = logits.detach().double().log_softmax(1)
    bad = int(log_p[:, 0].isnan().sum())  # one such logit makes its whole row NaN
    if bad:
        raise ValueError(f"{bad} of {len(logits)} rows of logits hold NaN or +infinity, or nothing but -infinity.")
    return log_p
