"""Uncertainties from one forward pass: larger means more likely wrong or foreign.

All are computed in float64, and all but the mutual information in log space, so that a saturated softmax makes no ties.
`dsui.score_table` lists them: names, labels, and which question each answers.

`uncertainty` is the one to use when there is no reason for another. It joins two questions, is the prediction wrong and
is the image foreign, as SIRC does (Xia and Bouganis, ACCV 2022): with S a confidence that the image is not foreign, and
m and s its mean and deviation over training images,

    u = ln(1 - max p) + softplus(-(S - (m - 3 s)) / s)

so that S counts only where it is unusually low. Where a model has no S, u is ln(1 - max p).

`foreignness` asks the second question alone, does the image belong to the data at all: the energy of the mixtures,
-logsumexp_i l_i of the tempered class scores, or of the logits where a model has no mixtures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.outputs import Outputs, share_of_radius
from dsui.score_table import FOREIGNNESS, NAMES, RECOMMENDED, SIRC
from dsui.spelling import nearest

FLOOR_QUANTILE = 0.01
TYPO = 0.85
"""How similar a name must be to that of a score to count as a misspelling of it."""


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
    """What scores need to know of the training images: moments of each secondary score, and the floor."""

    moments: dict[str, Moments]
    log_floor: float | None


PLAIN: dict[str, Callable[[Outputs, Reference], Tensor | None]] = {
    "max_probability": lambda out, _: max_probability(out.logits),
    "entropy": lambda out, _: entropy(out.logits),
    "max_logit": lambda out, _: max_logit(out.logits),
    "sphere_max_probability": lambda out, _: _if_any(max_probability, sphere_logits(out)),
    "density_max_probability": lambda out, _: _if_any(max_probability, out.class_scores),
    "density_entropy": lambda out, _: _if_any(entropy, out.class_scores),
    "floored_posterior": lambda out, training: (
        None
        if out.log_joint is None or training.log_floor is None
        else floored_posterior(out.log_joint, training.log_floor)
    ),
    "mutual_information": lambda out, _: _if_any(mutual_information, out.samples),
}
"""The scores of one formula; None where the outputs do not allow one."""
SECONDARY: dict[str, Callable[[Outputs], Tensor | None]] = {
    "energy": lambda out: energy(out.logits) if out.samples is None else None,
    "density_energy": lambda out: _if_any(energy, out.class_scores),
    "log_density": lambda out: _if_any(log_density, out.log_joint),
    "sphere_energy": lambda out: _if_any(energy, sphere_logits(out)),
    "norm": lambda out: None if out.norm is None else -out.norm.double(),
}
"""The secondary scores; None where a model does not have one.

The logits of a method that samples are log-probabilities, whose energy is 0 up to rounding.
"""


def _if_any(formula: Callable[[Tensor], Tensor], values: Tensor | None) -> Tensor | None:
    return None if values is None else formula(values)


def reference(training: Iterable[Outputs]) -> Reference:
    """From the training images' outputs, chunk by chunk."""
    found: dict[str, list[Tensor]] = {name: [] for name in SECONDARY}
    densities: list[Tensor] = []
    for chunk in training:
        for name, compute in SECONDARY.items():
            if (values := compute(chunk)) is not None:
                found[name].append(values)
        if chunk.log_joint is not None:
            densities.append(chunk.log_joint.double().amax(1))
    moments = {name: Moments.of(torch.cat(values)) for name, values in found.items() if values}
    floor = torch.cat(densities).sort().values[int(FLOOR_QUANTILE * sum(map(len, densities)))] if densities else None
    return Reference(moments, None if floor is None else floor.item())


def all_scores(outputs: Outputs, training: Reference) -> dict[str, Tensor]:
    """Every score these outputs allow, by name and in the order of results rows; [N] each.

    Where a method has a score of its own under the name of a plain one, its own counts.
    """
    plain = {name: compute(outputs, training) for name, compute in PLAIN.items()}
    found = {name: values for name, values in plain.items() if values is not None}
    found |= {name: values.double() for name, values in outputs.own.items()}
    for name, compute in SECONDARY.items():
        values = compute(outputs) if name in training.moments else None
        if values is not None:
            found[name] = values
            found[f"{SIRC}{name}"] = sirc(outputs.logits, values, *training.moments[name])
    joint = (f"{SIRC}{name}" for name in RECOMMENDED if f"{SIRC}{name}" in found)
    found["uncertainty"] = found[next(joint, "max_probability")]
    if (alone := next((name for name in FOREIGNNESS if name in found), None)) is not None:
        found["foreignness"] = found[alone]
    return found


def is_misspelled(name: str, more: Iterable[str] = ()) -> bool:
    """Whether `name` is no score and not in `more`, but so similar to one of these that it is hardly a score which only
    one method has."""
    known = (*NAMES, *more)
    return name not in known and nearest(name, known, TYPO) is not None
