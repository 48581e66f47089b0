"""EM for one mixture per class, of any family: classes one after another, in float64.

    E   r_nj = eta_j p_j(z_n) / sum_k eta_k p_k(z_n)         samples z_n of the class only
    M   what the family makes of its statistics, sums of r_nj times functions of z_n

Neither step lowers the likelihood. `dsui.em` does the same for the Gaussian of the paper, all classes at once.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor

from dsui.em import CHUNK_ELEMENTS, EM_STEPS, EM_TOLERANCE
from dsui.families.family import Components, Family


@torch.no_grad()
def maximise(
    family: Family, start: Components, z: Tensor, y: Tensor, fixed_variances: Tensor | None = None
) -> Components:
    """EM from `start` until the mean log-likelihood of a sample gains less than `EM_TOLERANCE`.

    Features [N, M] and their classes [N]. Classes of `fixed_variances` [C] keep the log-variances of the start. Sets
    the parameters of the family, and returns the components.
    """
    working = deepcopy(family).double()
    log_variances = None if start.log_variances is None else start.log_variances.double()
    components = Components(start.weights.double(), start.means.double(), log_variances)
    samples = [z[y == row].double() for row in range(family.classes)]
    previous = -float("inf")
    for _ in range(EM_STEPS):
        components, likelihood = step(working, components, samples)
        if fixed_variances is not None and log_variances is not None:
            assert components.log_variances is not None
            kept = torch.where(fixed_variances[:, None, None], log_variances, components.log_variances)
            components = components._replace(log_variances=kept)
        if likelihood - previous < EM_TOLERANCE:
            break
        previous = likelihood
    family.load_state_dict(working.state_dict())
    return components


@torch.no_grad()
def step(family: Family, components: Components, samples: list[Tensor]) -> tuple[Components, float]:
    """One step of a family in float64 on the samples [n, M] of every class; also the mean log-likelihood before it."""
    total, collected = 0.0, []
    for row, of_class in enumerate(samples):
        means, log_weights = components.means[row], components.weights[row].log()
        log_variances = None if components.log_variances is None else components.log_variances[row]
        sums: list[Tensor] = []
        for part in of_class.split(max(1, CHUNK_ELEMENTS // means.numel())):
            several = None if log_variances is None else log_variances[None]
            joint = family.log_prob(part, means[None], several, "exact", slice(row, row + 1))[:, 0] + log_weights
            total += float(joint.logsumexp(1).sum())
            found = family.statistics(part, joint.softmax(1), means, log_variances, row)
            sums = [a + b for a, b in zip(sums, found, strict=True)] if sums else list(found)
        collected.append(sums)
    stacked = tuple(torch.stack(each) for each in zip(*collected, strict=True))
    return family.maximise(stacked, components), total / sum(map(len, samples))
