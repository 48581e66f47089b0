"""Uncertainties from one forward pass: larger means more likely wrong or foreign.

All are computed in float64, and all but the mutual information in log space, so that a saturated softmax makes no ties.

`uncertainty` is the one to use when there is no reason for another. It joins the two questions, is the prediction
wrong and is the image foreign, as SIRC does (Xia and Bouganis, ACCV 2022): with S a confidence of the second kind, and
m and s its mean and deviation over training images,

    u = ln(1 - max p) + softplus(-(S - (m - 3 s)) / s)

so that S speaks only where it is unusually low. Where there is no S it is ln(1 - max p).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.outputs import Outputs, share_of_radius
from dsui.spelling import nearest

FLOOR_QUANTILE = 0.01


def max_probability(logits: Tensor) -> Tensor:
    """Max.P.: ln(1 - max_c p_c), p = softmax(logits). [B, C] -> [B]"""
    logits = logits.double()
    rest = logits.scatter(1, logits.argmax(1, keepdim=True), -torch.inf)
    return rest.logsumexp(1) - logits.logsumexp(1)


def entropy(logits: Tensor) -> Tensor:
    """Ent.: ln H[p] = ln sum_c p_c (-ln p_c). [B, C] -> [B]

    -ln p of the likeliest class is softplus of the log-odds x of the others. It keeps its digits when p is near 1, and
    its logarithm is x itself where exp(x) is lost beside 1, so that no odds are too small to count.
    """
    logits = logits.double()
    top = logits.argmax(1, keepdim=True)
    log_odds = logits.scatter(1, top, -torch.inf).logsumexp(1, keepdim=True) - logits.gather(1, top)
    surprise = F.softplus(log_odds)
    log_p = logits - logits.logsumexp(1, keepdim=True)
    terms = log_p + (-log_p).clamp(max=torch.finfo(torch.float64).max).log()  # of p = 0: -infinity, not nan
    return terms.scatter(1, top, torch.where(log_odds < -40, log_odds, surprise.log()) - surprise).logsumexp(1)


def energy(logits: Tensor) -> Tensor:
    """-ln sum_c exp(y_c) (Liu et al., NeurIPS 2020). [B, C] -> [B]"""
    return -logits.double().logsumexp(1)


def max_logit(logits: Tensor) -> Tensor:
    """-max_c y_c (Hendrycks et al., ICML 2022). [B, C] -> [B]"""
    return -logits.double().amax(1)


def sphere_logits(outputs: Outputs) -> Tensor | None:
    """The logits as they were trained, b_c + (y_c - b_c) / min(1, |h| / sqrt(M)); see `dsui.methods.dsui`. [B, C]"""
    if outputs.norm is None or outputs.weight is None:
        return None
    share = share_of_radius(outputs.norm.double(), outputs.weight.shape[1])[:, None]
    bias = 0.0 if outputs.bias is None else outputs.bias.double()
    return (outputs.logits.double() - bias) / share + bias


def log_density(log_joint: Tensor) -> Tensor:
    """-ln MoGMM(z) = -logsumexp_i (ln w_i + ln GMM_i(z)). [B, C] -> [B]"""
    return -log_joint.double().logsumexp(1)


def log_mean_exp(values: Tensor) -> Tensor:
    """ln 1/T sum_t exp(values_t). [B, T, C] -> [B, C]"""
    return values.logsumexp(1) - math.log(values.shape[1])


def mutual_information(samples: Tensor) -> Tensor:
    """1/T sum_t KL(p_t | mean p) of log-probabilities, in float64. [B, T, C] -> [B]"""
    samples = samples.double()
    parts = samples.exp() * (samples - log_mean_exp(samples).unsqueeze(1))
    divergences = parts.nan_to_num(nan=0.0).sum(2)  # 0 ln 0 is 0
    return divergences.mean(1).clamp(min=0)


def floored_posterior(log_joint: Tensor, log_floor: float) -> Tensor:
    """Max.P. of the posterior proportional to w_i GMM_i(z) + floor: uniform where every density is below the floor.

    This is what the 1e-8 in the authors' code does; here the floor is a low quantile of the training images'
    own densities. [B, C] -> [B]
    """
    log_joint = log_joint.double()
    return max_probability(torch.logaddexp(log_joint, log_joint.new_tensor(log_floor)))


def sirc(logits: Tensor, secondary: Tensor, mean: float, deviation: float) -> Tensor:
    """ln(1 - max p) + softplus((secondary - (mean + 3 deviation)) / deviation), for a secondary *uncertainty*."""
    excess = (secondary.double() - (mean + 3 * deviation)) / deviation
    return max_probability(logits) + F.softplus(excess)


class Moments(NamedTuple):
    mean: float
    deviation: float

    @staticmethod
    def of(values: Tensor) -> Moments:
        """Of an uncertainty of training images; the deviation is never 0."""
        return Moments(values.mean().item(), values.std().clamp(min=torch.finfo(torch.float64).tiny).item())


class Reference(NamedTuple):
    """What scores need to know of the training images: moments of each secondary uncertainty, and the floor."""

    moments: dict[str, Moments]
    log_floor: float | None


SECONDARY: dict[str, Callable[[Outputs], Tensor | None]] = {
    "energy": lambda outputs: energy(outputs.logits) if outputs.samples is None else None,
    "density_energy": lambda outputs: None if outputs.class_scores is None else energy(outputs.class_scores),
    "log_density": lambda outputs: None if outputs.log_joint is None else log_density(outputs.log_joint),
    "sphere_energy": lambda outputs: None if (logits := sphere_logits(outputs)) is None else energy(logits),
    "norm": lambda outputs: None if outputs.norm is None else -outputs.norm.double(),
}
"""Uncertainties that ask whether an image is foreign, by name; None where a model does not have one.

The logits of a method that samples are log-probabilities, whose energy is 0 up to rounding.
"""
COMMON = (
    *("max_probability", "entropy", "max_logit", "sphere_max_probability", "density_max_probability"),
    *("density_entropy", "floored_posterior", *SECONDARY, *(f"sirc_{name}" for name in SECONDARY), "uncertainty"),
)
"""The scores that are made here; methods and detectors add their own."""
TYPO = 0.85
"""How alike a word must be to a score to be meant as it."""
RECOMMENDED = ("sphere_energy", "energy")
"""The first of these that a model has is the second question of `uncertainty`."""


def detector_scores(detector: str) -> tuple[str, str]:
    """How the score of a detector is called, and that score joined with Max.P."""
    name = detector.replace("-", "_")
    return name, f"sirc_{name}"


def mistyped(name: str, more: Iterable[str] = ()) -> bool:
    """Whether it is none of COMMON and `more` and yet so like one of them that it can hardly be a method's own."""
    there = (*COMMON, *more)
    return name not in there and nearest(name, there, TYPO) is not None


def reference(training: Iterable[Outputs]) -> Reference:
    """From the training images' outputs, chunk by chunk."""
    found: dict[str, list[Tensor]] = {name: [] for name in SECONDARY}
    densities: list[Tensor] = []
    for chunk in training:
        for name, score in SECONDARY.items():
            if (values := score(chunk)) is not None:
                found[name].append(values)
        if chunk.log_joint is not None:
            densities.append(chunk.log_joint.double().amax(1))
    moments = {name: Moments.of(torch.cat(values)) for name, values in found.items() if values}
    floor = torch.cat(densities).sort().values[int(FLOOR_QUANTILE * sum(map(len, densities)))] if densities else None
    return Reference(moments, None if floor is None else floor.item())


def all_scores(outputs: Outputs, training: Reference) -> dict[str, Tensor]:
    """Every score these outputs allow, by name; [N] each."""
    logits = outputs.logits
    found = {"max_probability": max_probability(logits), "entropy": entropy(logits), "max_logit": max_logit(logits)}
    if (on_sphere := sphere_logits(outputs)) is not None:
        found["sphere_max_probability"] = max_probability(on_sphere)
    if outputs.class_scores is not None:
        found["density_max_probability"] = max_probability(outputs.class_scores)
        found["density_entropy"] = entropy(outputs.class_scores)
    if outputs.log_joint is not None and training.log_floor is not None:
        found["floored_posterior"] = floored_posterior(outputs.log_joint, training.log_floor)
    if outputs.samples is not None:
        found["mutual_information"] = mutual_information(outputs.samples)
    found |= {name: value.double() for name, value in outputs.own.items()}
    for name, score in SECONDARY.items():
        values = score(outputs)
        if values is not None and name in training.moments:
            found[name] = values
            found[f"sirc_{name}"] = sirc(logits, values, *training.moments[name])
    joint = (f"sirc_{name}" for name in RECOMMENDED if f"sirc_{name}" in found)
    found["uncertainty"] = found[next(joint, "max_probability")]
    return found
