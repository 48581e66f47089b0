"""Fitting one diagonal Gaussian mixture per class by expectation-maximisation.

All classes advance together as batched matrix products, over chunks of samples, so that neither a
thousand classes nor a million samples need more memory than a chunk beside the features. Everything is float64.

    E   r_nj = eta_j N(z_n; mu_j, b_j) / sum_k eta_k N(z_n; mu_k, b_k)         z_n of this class only
    M   N_j = sum_n r_nj,  mu_j = sum_n r_nj z_n / N_j,  b_j = sum_n r_nj z_n^2 / N_j - mu_j^2,  eta_j = N_j / n

A sample of weight w counts as w samples. `start` gives a class of few samples fewer components and pooled variances,
because EM would put a component on each sample, with no variance.
(Bishop 2006, section 9.2; seeding: Arthur and Vassilvitskii 2007, k-means++.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.density import natural_parameters

CHUNK_ELEMENTS = 2**23
LLOYD_STEPS = 10
EM_STEPS = 100
EM_TOLERANCE = 1e-3
"""EM stops when the mean log-likelihood of a sample gains less than this, in nats (scikit-learn's default)."""
DEAD = 0.5
"""A component that explains less than half a sample is re-seeded."""
SAMPLES_PER_COMPONENT = 2
"""`start` gives a class at most one component for so many samples."""


@dataclass(frozen=True)
class Mixtures:
    """One mixture per class: weights [C, K], means and variances [C, K, M]."""

    weights: Tensor
    means: Tensor
    variances: Tensor


class ClassSamples:
    """Samples grouped by class, read as chunks of [classes, samples, M]; `weights` [N] are positive, None for ones.

    `mass` [C] is the weight of each class.
    """

    def __init__(self, z: Tensor, y: Tensor, num_classes: int, weights: Tensor | None = None) -> None:
        self.z = z
        self.weights = torch.ones(len(z), dtype=torch.float64, device=z.device) if weights is None else weights.double()
        self.counts = torch.bincount(y, minlength=num_classes)
        self.mass = torch.bincount(y, self.weights, minlength=num_classes)
        self.order = torch.argsort(y, stable=True)
        self.starts = self.counts.cumsum(0) - self.counts
        self.size = z.shape[1]
        self.centre = torch.zeros(num_classes, self.size, dtype=torch.float64, device=z.device)
        total = torch.zeros_like(self.centre)
        for classes, chunk, weight in self.chunks():
            total.index_add_(0, classes, (chunk * weight[..., None]).sum(1))
        self.centre = total / self.mass[:, None]

    def chunks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(classes [c], z [c, s, M] relative to the class centre, weight [c, s]) until every sample was seen once.

        Where a class has run out of samples, the weight is 0.
        """
        step = max(1, CHUNK_ELEMENTS // (len(self.counts) * self.size))
        for begin in range(0, int(self.counts.max()), step):
            classes = torch.nonzero(self.counts > begin)[:, 0]
            position = begin + torch.arange(min(step, int(self.counts.max()) - begin), device=self.z.device)
            mask = position < self.counts[classes, None]
            index = self.order[self.starts[classes, None] + torch.where(mask, position, begin)]
            yield classes, self.z[index].double() - self.centre[classes, None], self.weights[index] * mask


def start(samples: ClassSamples, present: Mixtures, floor: float, generator: torch.Generator) -> Mixtures:
    """As `fit`, but a class of n samples uses at most n / 2 components, at least one. If these are fewer than there
    are, its variances are those pooled over all classes, and its other components have the weight 0. A class without
    samples keeps its `present` mixture."""
    components = present.weights.shape[1]
    most, few = (samples.counts // SAMPLES_PER_COMPONENT).clamp(1, components), has_few(samples, components)
    if not bool(few.any()):
        return fit(samples, components, floor, generator)
    fitted = fit(samples, components, floor, generator, torch.arange(components, device=most.device) < most[:, None])
    variances = torch.where(few[:, None, None], pooled_variance(samples).clamp(min=floor), fitted.variances)
    there = (samples.counts > 0)[:, None]
    return Mixtures(
        torch.where(there, fitted.weights, present.weights),
        torch.where(there[..., None], fitted.means, present.means),
        torch.where(there[..., None], variances, present.variances),
    )


def has_few(samples: ClassSamples, components: int) -> Tensor:
    """[C] whether a class has too few samples for variances of its own."""
    return samples.counts // SAMPLES_PER_COMPONENT < components


def pooled_variance(samples: ClassSamples) -> Tensor:
    """[M] the mean squared distance of a sample to the mean of its class."""
    total = torch.zeros(samples.size, dtype=torch.float64, device=samples.z.device)
    for _, z, weight in samples.chunks():
        total += (z.square() * weight[..., None]).sum((0, 1))
    return total / samples.mass.sum()


def fit(
    samples: ClassSamples,
    components: int,
    floor: float,
    generator: torch.Generator,
    used: Tensor | None = None,
) -> Mixtures:
    """k-means++ seeds, a few Lloyd steps, then EM to convergence; components that die are re-seeded. `used` [C, K] says
    which components take part; None: all."""
    seeds = seed_means(samples, components, generator)
    weights = torch.ones_like(seeds[..., 0]) if used is None else used.to(seeds.dtype)
    mixtures = Mixtures(weights / weights.sum(1, keepdim=True), seeds, torch.ones_like(seeds))
    for _ in range(LLOYD_STEPS):
        moved, _ = step(samples, mixtures, floor, hard=True, used=used)
        mixtures = replace(mixtures, means=moved.means)
    mixtures, _ = step(samples, mixtures, floor, hard=True, used=used)
    return maximise(samples, mixtures, floor, generator, used)


def maximise(
    samples: ClassSamples, mixtures: Mixtures, floor: float, generator: torch.Generator, used: Tensor | None = None
) -> Mixtures:
    """EM from `mixtures` until the likelihood settles."""
    previous = -float("inf")
    for _ in range(EM_STEPS):
        mixtures, likelihood = step(samples, mixtures, floor, used=used)
        mixtures, revived = revive(samples, mixtures, generator, used)
        if likelihood - previous < EM_TOLERANCE and not revived:
            break
        previous = likelihood
    return mixtures


def step(
    samples: ClassSamples, mixtures: Mixtures, floor: float, hard: bool = False, used: Tensor | None = None
) -> tuple[Mixtures, float]:
    """One EM step and the mean log-likelihood before it; `hard` gives each sample to its best component (Lloyd).

    A component that explains nothing keeps its mean and variance and gets weight zero.
    """
    centre = samples.centre[:, None]
    natural, constant = natural_parameters(mixtures.means - centre, mixtures.variances.log(), -math.inf)
    quadratic, linear = natural.chunk(2, -1)
    bias = constant + mixtures.weights.clamp(min=torch.finfo(torch.float64).tiny).log()
    bias = bias if used is None else bias.masked_fill(~used, -math.inf)
    mass = torch.zeros_like(mixtures.weights)
    first, second = torch.zeros_like(mixtures.means), torch.zeros_like(mixtures.means)
    likelihood = torch.zeros((), dtype=torch.float64, device=bias.device)
    for classes, z, weight in samples.chunks():
        square = z.square()
        joint = torch.baddbmm(bias[classes, None], z, linear[classes].mT)
        joint = torch.baddbmm(joint, square, quadratic[classes].mT)
        likelihood += (joint.logsumexp(-1) * weight).sum()
        share = F.one_hot(joint.argmax(-1), joint.shape[-1]).double() if hard else joint.softmax(-1)
        share = share * weight[..., None]
        mass.index_add_(0, classes, share.sum(1))
        first.index_add_(0, classes, share.mT @ z)
        second.index_add_(0, classes, share.mT @ square)
    count = mass.clamp(min=torch.finfo(torch.float64).tiny)[..., None]
    first, second = first / count, second / count
    empty = (mass == 0)[..., None]
    means = torch.where(empty, mixtures.means, first + centre)
    variances = torch.where(empty, mixtures.variances, (second - first.square()).clamp(min=floor))
    weights = mass / samples.mass[:, None]
    return Mixtures(weights, means, variances), float(likelihood / samples.mass.sum())


def revive(
    samples: ClassSamples, mixtures: Mixtures, generator: torch.Generator, used: Tensor | None = None
) -> tuple[Mixtures, bool]:
    """Move each dead component to a sample far from the living ones, with its class's mean variance and weight 1/K.

    A class with no more samples than components keeps its dead ones: there is nothing left for them to explain.
    """
    components = mixtures.weights.shape[1]
    mass = mixtures.weights * samples.mass[:, None]
    dead = (mass < DEAD) & (samples.counts > components)[:, None]
    dead = dead if used is None else dead & used
    if not bool(dead.any()):
        return mixtures, False
    living = (mixtures.weights * ~dead)[..., None]
    spread = (living * mixtures.variances).sum(1, keepdim=True) / living.sum(1, keepdim=True)
    means = mixtures.means
    settled = ~dead
    for j in range(components):
        drawn = draw_far_sample(samples, means, settled, generator)
        means = means.clone()
        means[:, j] = torch.where(dead[:, j, None], drawn, means[:, j])
        settled = settled.clone()
        settled[:, j] = True
    weights = torch.where(dead, 1 / components, mixtures.weights)
    return Mixtures(
        weights / weights.sum(1, keepdim=True), means, torch.where(dead[..., None], spread, mixtures.variances)
    ), True


def seed_means(samples: ClassSamples, components: int, generator: torch.Generator) -> Tensor:
    """k-means++: each further seed is drawn with probability proportional to its squared distance. [C, K, M]"""
    means = samples.centre[:, None].repeat(1, components, 1)
    chosen = torch.zeros(means.shape[:2], dtype=torch.bool, device=means.device)
    for j in range(components):
        means[:, j] = draw_far_sample(samples, means, chosen, generator)
        chosen[:, j] = True
    return means


def draw_far_sample(samples: ClassSamples, means: Tensor, chosen: Tensor, generator: torch.Generator) -> Tensor:
    """One sample per class, drawn with probability proportional to w D^2, D its distance to the nearest chosen mean.

    The draw is an exponential race (the smallest E_n / (w_n D_n^2) wins), so one pass over the chunks is enough.
    Before any mean is chosen, and where all distances are zero, every sample is equally likely. Returns [C, M].
    """
    centre = samples.centre
    winner = centre.clone()
    best = torch.full((len(centre),), torch.inf, dtype=torch.float64, device=centre.device)
    relative = means - centre[:, None]
    for classes, z, weight in samples.chunks():
        squared = torch.cdist(z, relative[classes], compute_mode="donot_use_mm_for_euclid_dist").square()
        distance = squared.masked_fill(~chosen[classes, None], torch.inf).amin(-1)
        distance = torch.where(distance.isinf(), 1.0, distance)
        race = torch.empty(weight.shape, dtype=torch.float64).exponential_(generator=generator).to(z.device)
        time = (race / (weight * distance.clamp(min=1e-300))).masked_fill(weight == 0, torch.inf)
        fastest, which = time.min(-1)
        ahead = fastest < best[classes]
        found = z[torch.arange(len(classes), device=z.device), which] + centre[classes]
        winner[classes] = torch.where(ahead[:, None], found, winner[classes])
        best[classes] = torch.where(ahead, fastest, best[classes])
    return winner
