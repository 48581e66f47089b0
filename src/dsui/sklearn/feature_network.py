"""DS-UI on feature arrays: a small network whose features keep the inputs, and mixtures over these features.

    z = (x - m) / d                          m, d: mean and deviation of every input over the training samples
    h = (z, tanh(A z + a))                   the features, M of them
    y = s W h min(1, r / |h|)                the classifier; r is the root mean square of |h| over training samples
    l_i = ln omega_i + logsumexp_j (ln eta_ij + ln N(h; mu_ij, diag b_ij) / tau)

Training is that of `dsui.objectives`, `bounded` on a `MoGMMHead` without the sphere. Features that keep the inputs need
no sphere against shrinking, and their length tells much. The classifier's rows s W_i are then kept, and the mixtures
are fitted to the final features by EM (`dsui.em`): the posterior needs means that separate, the density needs means
that describe. A component's variance is drawn towards the pooled variance v within classes, as n0 further samples do:

    b = (n_ij b_EM + n0 v) / (n_ij + n0),   n_ij the samples that the component holds

Features longer than r predict as if they had the length r, as in `dsui.methods.dsui`: far away is no reason for
confidence. docs/estimator.md has what this reaches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from dsui import em
from dsui.head import MoGMMHead
from dsui.objectives import DualSupervisedLoss
from dsui.outputs import Outputs
from dsui.scores import Moments, energy

PEAK_RATE = 0.02
DECAY = 0.05
"""Of the hidden layer's weights, in units of the rate."""
BATCH = 4096
"""Samples in a step; smaller sets are trained whole."""
SMALLEST_VARIANCE = 1e-3
POOLED_SAMPLES = 5.0
"""n0."""


class FeatureNetwork(nn.Module):
    """Everything is float64 on the CPU. `weight` [C, M] are the rows of the classifier, `foreign` the moments of the
    foreignness of training samples; both are there after `train_network`."""

    mean: Tensor
    deviation: Tensor
    weight: Tensor
    radius: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor, num_classes: int, hidden: int, components: int) -> None:
        super().__init__()
        inputs = len(mean)
        self.hidden = nn.Linear(inputs, hidden)
        self.head = MoGMMHead(inputs + hidden, num_classes, components, False, variance_floor=SMALLEST_VARIANCE)
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)
        self.register_buffer("weight", torch.zeros(num_classes, inputs + hidden))
        self.register_buffer("radius", torch.ones(()))
        self.foreign = Moments(0.0, 1.0)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs] -> [B, M], the features h."""
        z = (x - self.mean) / self.deviation
        return torch.cat([z, self.hidden(z).tanh()], 1)

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Outputs:
        """What it knows of samples [N, inputs]."""
        return Outputs.concatenated(self._outputs(self(block)) for block in x.split(BATCH))

    def _outputs(self, h: Tensor) -> Outputs:
        known = self.head(h)
        features = h * (self.radius / known.norm.clamp(min=self.radius))[:, None]
        return Outputs(
            features,
            features @ self.weight.T,
            class_scores=known.class_scores,
            log_joint=known.log_joint,
            weight=self.weight,
        )


def train_network(
    x: Tensor, y: Tensor, weights: Tensor, num_classes: int, hidden: int, components: int, steps: int, seed: int
) -> FeatureNetwork:
    """Of samples x [N, inputs], labels y [N] and positive weights [N]. Equal arguments give equal networks."""
    mass = float(weights.sum())
    mean = weights @ x / mass
    deviation = (weights @ (x - mean).square() / mass).sqrt()
    constant = deviation <= 1e-12 * mean.abs()  # what rounding leaves of an input that is always the same
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = FeatureNetwork(mean, deviation.masked_fill(constant, 1.0), num_classes, hidden, components)
        network.head.set_class_prior(torch.bincount(y, weights, minlength=num_classes))
        _supervise(network, x, y, weights / mass * len(x), steps, 1 / mass)
    network.eval()
    _fit_densities(network, x, y, weights, seed)
    return network


def _supervise(network: FeatureNetwork, x: Tensor, y: Tensor, weights: Tensor, steps: int, gamma: float) -> None:
    """The dual-supervised training; `weights` have the mean 1. The rate falls along half a cosine.

    gamma 1 / N weighs the regulariser as one prior for N samples, as in the variational bound that it is from.
    """
    loss = DualSupervisedLoss(gamma=gamma)
    groups = [
        {"params": network.hidden.parameters(), "weight_decay": DECAY},
        {"params": network.head.parameters(), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE)
    network.train()
    for step, chosen in zip(range(steps), _batches(len(x)), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = PEAK_RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
        value = loss(network.head(network(x[chosen])), y[chosen], network.head, weights[chosen])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def _batches(samples: int) -> Iterator[Tensor | slice]:
    """Without end: all samples where they are few, else random batches, each sample once in an epoch."""
    while samples <= BATCH:
        yield slice(None)
    while True:
        yield from torch.randperm(samples)[: samples // BATCH * BATCH].split(BATCH)


@torch.no_grad()
def _fit_densities(network: FeatureNetwork, x: Tensor, y: Tensor, weights: Tensor, seed: int) -> None:
    head = network.head
    network.weight.copy_(head.class_weights * head.logit_scale)
    h = torch.cat([network(block) for block in x.split(BATCH)])
    mass = weights.sum()
    network.radius.copy_((weights @ h.square().sum(1) / mass).sqrt())
    samples = em.ClassSamples(h, y, head.num_classes, weights)
    mixtures = em.fit(samples, head.components, SMALLEST_VARIANCE, torch.Generator().manual_seed(seed))
    pooled = weights @ (h - samples.centre[y]).square() / mass
    held = (mixtures.weights * samples.mass[:, None])[..., None]
    variances = (held * mixtures.variances + POOLED_SAMPLES * pooled) / (held + POOLED_SAMPLES)
    head.adopt(em.Mixtures(mixtures.weights, mixtures.means, variances.clamp(min=SMALLEST_VARIANCE)))
    foreign = torch.cat([energy(head(block).class_scores) for block in h.split(BATCH)])
    mean = weights @ foreign / mass
    deviation = (weights @ (foreign - mean).square() / mass).sqrt()
    network.foreign = Moments(mean.item(), max(deviation.item(), torch.finfo(torch.float64).eps))
