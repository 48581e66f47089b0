"""The dual-supervised objectives: pull each feature to its own class's mixture, push it from the others.

With y the logits, l the tempered class scores, t the label, q = softmax(l) and means over the batch:

    bounded         CE(y) + softplus(ln rho + logsumexp_{i != t} l_i - l_t) + gamma Reg
    posterior       CE(y) + rho - (1 + rho) q_t + gamma Reg
    sgvb            CE(y) - tau/M l_t + gamma Reg
    literal         CE(y) - ln(w_t GMM_t) + rho sum_{i != t} ln(w_i GMM_i) + gamma Reg
    printed-stable  CE(y) + 1/M { -ln(w_t GMM_t) + rho mean_{i != t} ln(w_i GMM'_i) } + gamma Reg
    released        CE(y) + rho - (1 + rho) q'_t + gamma R,  q' = softmax(ln w_i + ln(g_i + 1e-8))

`bounded` is the push against the pull: never negative, the cross-entropy of l at rho = 1, a margin of
ln rho otherwise, and zero at rho = 0, so "no push" is `sgvb`. The pull of `sgvb` is counted in nats per feature
dimension. As a whole score, M / tau times as strong, it holds back the cross-entropy beside it.

`literal` is the printed loss (equation 10). It has no minimum: for rho > 1 / (C - 1) moving a mean away from
everything lowers it without end. `sign_of_divergence` tells when its mixtures leave their own classes, and a
DivergenceError stops it when they are gone.

`printed-stable` keeps the printed pull and push and has a lower bound. It differs in three things: densities per
feature dimension, the mean of the C - 1 negatives instead of their sum, and a push that moves features alone: GMM'
are the mixtures with all their parameters held fixed (a stop-gradient), so that no mean and no variance can run away
from the features that it should repel. Mixtures see CE, pull and Reg alone. These are bounded below, since with
variances of at least f

    -1/M ln(w_t GMM_t) >= 1/2 ln(2 pi f)

and grow with the distance of a mean from the features of its class. Features lie on the sphere, so the push on them is
bounded too: with means of at most r sqrt(M), variances from f to b, and the smallest class weight w

    rho/M mean ln(w_i GMM'_i) >= -rho { 1/2 ln(2 pi b) + (1 + r)^2 / (2 f) - 1/M ln w }

Without the sphere longer features would lower the push without end, so it needs a layer that projects.

`released` is what the authors' code minimises: g_i lacks the factor
(2 pi)^(-M/2), and R = -1/2 sum_i w_i sum_k eta_ik sum(block k of b~_i), where for K > 1 block k is not
component k but the k-th run of M values of b~_i in [M, K] order. Floor and mixture are computed
in log space, where the authors' float32 exponential underflows to zero gradient.

Every row of the paper's ablation (Table 1) is a setting here: K is the head's `components`; "without push" is `sgvb`;
`regularizer` chooses Reg, the plain KL or neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.balancing import balanced as balanced_output
from dsui.checks import check_choice, check_labels
from dsui.companions import COMPANIONS, Companion, check_companion, companion_loss
from dsui.density import LN_2PI
from dsui.errors import DivergenceError
from dsui.head import REGULARIZERS, MoGMMHead, Regularizer
from dsui.head_output import HeadOutput

Objective = Literal["bounded", "posterior", "sgvb", "literal", "printed-stable", "released"]

PAPER_RHO = 4.0
"""The default of the two objectives that are printed as a pull and a push of log-densities."""
PRINTED = ("literal", "printed-stable")
TEMPERED = ("bounded", "posterior", "sgvb")
"""The objectives made of tempered class scores."""
LOG_FLOOR = math.log(1e-8)
DIVERGED = 100.0
"""`literal` stops when the mean log-density of the other classes passes -100 nats per feature dimension;
a trained mixture gives some -10."""
OWN_DENSITY = "own_log_density"
LOST = 0.01
"""`literal` diverges when the log-density of the own class has fallen by this, in nats per feature dimension. Where the
push is weak enough to learn it rises: docs/log/printed-objective.md has both."""


class DualSupervisedLoss:
    """`loss(out, y, head)` is the whole objective; `loss.terms` then holds its parts, detached.

    rho defaults to 1, for `literal` and `printed-stable` to the paper's 4. `regularizer` None leaves Reg out.
    `balanced_components` makes the components of a class explain equally many of its samples (`dsui.balancing`).
    `companion` adds another loss, `companion_weight` times (`dsui.companions`).
    terms: "cross_entropy", "dual" (the objective's own part) and, where there are such, "regularizer" and the companion
    by its name, both without their factors; for `literal` also "own_log_density", ln(w_t GMM_t) / M.
    """

    def __init__(
        self,
        objective: Objective = "bounded",
        rho: float | None = None,
        gamma: float = 1e-4,
        regularizer: Regularizer | None = "reg",
        companion: Companion | None = None,
        companion_weight: float = 1.0,
        balanced_components: bool = False,
    ) -> None:
        check_choice("objective", objective, get_args(Objective))
        check_choice("companion", companion, (*COMPANIONS, None))
        check_choice("regularizer", regularizer, (*REGULARIZERS, None))
        if rho is None:
            rho = PAPER_RHO if objective in PRINTED else 1.0
        for name, value in (("rho", rho), ("gamma", gamma), ("companion_weight", companion_weight)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be finite and not negative, got {value}.")
        self.objective, self.rho, self.gamma, self.regularizer = objective, rho, gamma, regularizer
        if balanced_components and objective not in TEMPERED:
            raise ValueError(
                f"the objective {objective} is made of untempered densities, whose components are not balanced; choose "
                f"{' or '.join(TEMPERED)}."
            )
        self.companion, self.companion_weight = companion, companion_weight
        self.balanced_components = balanced_components
        self.terms: dict[str, Tensor] = {}

    def __call__(self, out: HeadOutput, y: Tensor, head: MoGMMHead, weights: Tensor | None = None) -> Tensor:
        """`weights` [B] say how much each sample counts; their mean is 1. Only `bounded` takes them."""
        check_labels(y, *out.logits.shape)
        check_bounded(self.objective, projects=head.projection is not None)
        check_companion(self.companion, projects=head.projection is not None)
        if weights is not None and self.objective != "bounded":
            raise ValueError(f"the objective {self.objective} takes no weights of samples; choose bounded.")
        if weights is not None and self.companion is not None:
            raise ValueError(f"the companion {self.companion} takes no weights of samples; leave one of the two out.")
        if self.balanced_components:
            out = balanced_output(out, y, head.temperature)
        parts = {"cross_entropy": cross_entropy(out.logits, y, weights), "dual": self._dual(out, y, head, weights)}
        total = parts["cross_entropy"] + parts["dual"]
        if self.regularizer is not None:
            released = self.objective == "released"
            parts["regularizer"] = (
                released_regularizer(head) if released else head.regularizer(self.regularizer, out.log_mixing)
            )
            total = torch.add(total, parts["regularizer"], alpha=self.gamma)
        if self.companion is not None:
            parts[self.companion] = companion_loss(self.companion, out, y, head)
            total = torch.add(total, parts[self.companion], alpha=self.companion_weight)
        if self.objective == "literal":
            parts[OWN_DENSITY] = own(out.log_joint, y).mean() / head.in_features
        self.terms = {name: part.detach() for name, part in parts.items()}
        return total

    def _dual(self, out: HeadOutput, y: Tensor, head: MoGMMHead, weights: Tensor | None = None) -> Tensor:
        match self.objective:
            case "bounded":
                return bounded(out.class_scores, y, self.rho, weights)
            case "posterior":
                return posterior(out.class_scores, y, self.rho)
            case "sgvb":
                return -own(out.class_scores, y).mean() * (head.temperature / head.in_features)
            case "literal":
                return literal(out.log_joint, y, self.rho, head.in_features)
            case "printed-stable":
                frozen = head.frozen_log_joint(out.features)
                return printed_stable(out.log_joint, frozen, y, self.rho) / head.in_features
            case "released":
                return posterior(released_scores(out, head), y, self.rho)


def check_bounded(objective: Objective, projects: bool) -> None:
    """Raise where `printed-stable` would have no lower bound."""
    if objective == "printed-stable" and not projects:
        raise ValueError(
            "the objective printed-stable has a lower bound only on the sphere; choose a layer that projects "
            "(project=true, head=mogmm) or another objective, as bounded."
        )


def own(scores: Tensor, y: Tensor) -> Tensor:
    """[B] the label's score."""
    return scores.gather(1, y[:, None])[:, 0]


def cross_entropy(logits: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """mean -ln softmax(y)_t, each sample times its weight."""
    if weights is None:
        return F.cross_entropy(logits, y)
    return (F.cross_entropy(logits, y, reduction="none") * weights).mean()


def bounded(class_scores: Tensor, y: Tensor, rho: float, weights: Tensor | None = None) -> Tensor:
    """mean softplus(ln rho + logsumexp_{i != t} l_i - l_t): cross-entropy of the scores with ln rho on the others."""
    if rho != 1:
        log_rho = math.log(rho) if rho > 0 else -math.inf
        others = torch.arange(class_scores.shape[1], device=y.device) != y[:, None]
        class_scores = torch.where(others, class_scores + log_rho, class_scores)
    return cross_entropy(class_scores, y, weights)


def posterior(class_scores: Tensor, y: Tensor, rho: float) -> Tensor:
    """mean rho - (1 + rho) q_t: the pull -q_t and the push rho (1 - q_t) on posteriors instead of log-densities."""
    return rho - (1 + rho) * own(class_scores.softmax(1), y).mean()


def literal(log_joint: Tensor, y: Tensor, rho: float, features: int) -> Tensor:
    """mean -ln(w_t GMM_t) + rho sum_{i != t} ln(w_i GMM_i); DivergenceError once it falls without end."""
    pull = own(log_joint, y)
    push = log_joint.sum(1) - pull
    per_dimension = float(push.detach().mean()) / (features * (log_joint.shape[1] - 1))
    if not per_dimension > -DIVERGED:
        raise DivergenceError(
            f"the literal objective diverged: other classes' log-density is {per_dimension:.3g} nats per feature "
            'dimension. It has no minimum; train with objective="bounded".'
        )
    return (rho * push - pull).mean()


def sign_of_divergence(densities: Sequence[float]) -> str | None:
    """One sentence if the mixtures have begun to leave the features, from the `own_log_density` of every epoch so far.
    The pull raises it; where it falls, the push has won."""
    if not densities or densities[-1] >= max(densities) - LOST:
        return None
    best, now = max(densities), densities[-1]
    return (
        f"the literal objective diverges: an image's log-density under its own class has fallen from {best:.4g} "
        f"to {now:.4g} nats per feature dimension, because pushing all mixtures away lowers the loss without "
        "end; train with --set objective=bounded or printed-stable."
    )


def printed_stable(log_joint: Tensor, frozen: Tensor, y: Tensor, rho: float) -> Tensor:
    """mean -ln(w_t GMM_t) + rho mean_{i != t} ln(w_i GMM'_i), from `frozen` [B, C], the densities GMM'."""
    push = (frozen.sum(1) - own(frozen, y)) / (frozen.shape[1] - 1)
    return (rho * push - own(log_joint, y)).mean()


def released_scores(out: HeadOutput, head: MoGMMHead) -> Tensor:
    """ln w_i + ln(g_i + 1e-8), g_i = (2 pi)^(M/2) GMM_i(z)."""
    log_g = out.log_joint - out.log_prior + 0.5 * head.in_features * LN_2PI
    return out.log_prior + torch.logaddexp(log_g, log_g.new_full((), LOG_FLOOR))


def released_regularizer(head: MoGMMHead) -> Tensor:
    """R, including the misreading of [M, K, C] storage as [K, M, C]."""
    classes, components, size = head.means.shape
    blocks = head.log_variances.permute(2, 1, 0).reshape(components, size, classes).sum(1)
    return -0.5 * (head.class_prior * head.mixing_weights.T * blocks).sum()
