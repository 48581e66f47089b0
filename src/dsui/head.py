"""The MoGMM-FC layer: a classifier whose class weights are the means of per-class Gaussian mixtures.

    z        = sqrt(M) h / |h|,  h = batch norm of the features                   project=True, else z = x
    GMM_i(z) = sum_j eta_ij N(z; mu_ij, diag b_ij)                                b = exp(b~), eta = softmax(eta~)
    MoGMM(z) = sum_i omega_i GMM_i(z)                                             omega: class frequencies
    y_i      = s W_i z,  W_i = sum_j eta_ij mu_ij                                 the tied classifier
    l_i      = ln omega_i + logsumexp_j (ln eta_ij + ln N_ij(z) / tau)            tempered class scores

(Xie et al., DS-UI, equations 1 and 2.) Three things are not in the paper, and each can be switched off:
the projection (`dsui.projection`); the learned logit scale s, without which the means cannot live at the
scale of the features; and the temperature tau, without which class scores differ by O(M) nats and their
posterior is 0 or 1. softmax(l) is therefore a tempered posterior; `log_joint` is the untempered density.

The variational reading: with mu_ij ~ q = N(a_ij, b_ij) the expected log-likelihood of a component is
E_q ln N(z; mu, b) = ln N(z; a, b) - M/2, so plugging in the means is exact up to a constant.

`family` puts another distribution in the place of N, `covariance` another covariance (`dsui.families`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dsui import em
from dsui.checks import check_at_least, check_choice, check_features, check_labels, check_positive
from dsui.density import Precision, mixture_log_prob, mixture_mean
from dsui.divergence import mixture_divergence
from dsui.families import registry
from dsui.families.expectation_maximisation import maximise
from dsui.families.family import Components, Family
from dsui.families.gaussian import Gaussian
from dsui.families.registry import Covariance
from dsui.head_output import HeadOutput
from dsui.matrix_product import product
from dsui.projection import SphereProjection

Regularizer = Literal["reg", "reg-paper", "kl"]
PRECISIONS: tuple[Precision, ...] = ("fast", "exact")
REGULARIZERS: tuple[Regularizer, ...] = ("reg", "reg-paper", "kl")

MEANS_AT_START = 0.1
"""Deviation of the random means, small beside the features' 1: docs/decisions.md has the figures."""
SCALE_AT_START = 48.0
"""The logit scale starts at 48 / M: a feature on a class weight of its own length then has logit 48.
docs/decisions.md has the figures."""
SMALLEST_WEIGHT = 1e-6
"""A component that explains nothing after EM keeps this weight, so that its logit stays finite."""


class MoGMMHead(nn.Module):
    """Replaces a classifier's last linear layer; every method takes raw features [B, in_features].

    `logit_scale` is learned; a number is M times its start value, None fixes it at 1. `temperature` None means
    max(1, M / 64). `precision` holds in training mode, `evaluation_precision` in evaluation mode; set the latter to
    "fast" for a device without float64 units. `family` names what components are (`dsui.families.registry`);
    `covariance` is that of Gaussians: "diagonal" as in the paper, "tied", one full matrix for all, or "low-rank", a
    diagonal and `rank` directions for each.
    """

    log_variances: nn.Parameter
    mixing_logits: Tensor
    class_prior: Tensor
    temperature: Tensor

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        components: int = 8,
        project: bool = True,
        logit_scale: Literal["learned"] | float | None = "learned",
        temperature: float | None = None,
        variance_floor: float = 1e-3,
        covariance: Covariance = "diagonal",
        precision: Precision = "fast",
        evaluation_precision: Precision = "exact",
        family: str = "gaussian",
        rank: int | None = None,
    ) -> None:
        super().__init__()
        temperature = max(1.0, in_features / 64) if temperature is None else temperature
        check_at_least("in_features", in_features, 1)
        check_at_least("num_classes", num_classes, 2)
        check_at_least("components", components, 1)
        check_positive("temperature", temperature)
        check_positive("variance_floor", variance_floor)
        start = SCALE_AT_START if logit_scale == "learned" else logit_scale
        if isinstance(start, str):
            raise ValueError(f"logit_scale must be 'learned', a number to start from, or None, got {start!r}.")
        if start is not None:
            check_positive("logit_scale", start)
        name = registry.name_of(family, covariance, rank, project)
        check_choice("precision", precision, PRECISIONS)
        check_choice("evaluation_precision", evaluation_precision, PRECISIONS)
        self.in_features, self.num_classes, self.components = in_features, num_classes, components
        self.variance_floor = variance_floor
        self.precision, self.evaluation_precision = precision, evaluation_precision
        self.projection = SphereProjection(in_features) if project else None
        shape = (num_classes, components, in_features)
        self.means = nn.Parameter(MEANS_AT_START * torch.randn(shape))
        found = registry.find(name)
        self.register_parameter("log_variances", nn.Parameter(torch.zeros(shape)) if found.has_variances else None)
        self.mixing_logits = nn.Parameter(torch.zeros(shape[:2]))
        self.log_logit_scale = None if start is None else nn.Parameter(torch.tensor(math.log(start / in_features)))
        self.register_buffer("class_prior", torch.full((num_classes,), 1 / num_classes))
        self.register_buffer("temperature", torch.tensor(float(temperature)))
        ranks = {} if rank is None else {"rank": rank}
        self.family: Family = found(num_classes, components, in_features, variance_floor, **ranks)

    @property
    def mixing_weights(self) -> Tensor:
        """[C, K] eta = softmax(eta~)."""
        return self.mixing_logits.softmax(1)

    @property
    def variances(self) -> Tensor:
        """[C, K, M] b = exp(b~), at least the floor; only of a family that has them."""
        return self.log_variances.exp().clamp(min=self.variance_floor)

    @property
    def class_weights(self) -> Tensor:
        """[C, M] W_i = sum_j eta_ij mu_ij."""
        return mixture_mean(self.means, self.mixing_weights)

    @property
    def logit_scale(self) -> Tensor | float:
        """s, positive; 1 for the paper's plain tie."""
        return 1.0 if self.log_logit_scale is None else self.log_logit_scale.exp()

    def forward(self, x: Tensor) -> HeadOutput:
        """Everything the head knows of raw features; in training mode it updates the running statistics too."""
        z, norm = self._project(x, update=self.training)
        features = z.to(self.means.dtype)
        components = self._component_log_prob(z)
        log_prior, log_mixing = self.class_prior.log(), self.mixing_logits.log_softmax(1)
        return HeadOutput(
            logits=product(features, self._scaled_class_weights(log_mixing)),
            class_scores=log_prior + mixture_log_prob(components, log_mixing, self.temperature),
            features=features,
            norm=norm.to(self.means.dtype),
            component_log_prob=components,
            log_mixing=log_mixing,
            log_prior=log_prior,
        )

    def project(self, x: Tensor) -> Tensor:
        """Raw features to z, as in `forward`, without updating the running statistics."""
        return self._project(x)[0].to(self.means.dtype)

    def log_prob(self, x: Tensor) -> Tensor:
        """[B] ln MoGMM(z) = logsumexp_i log_joint_i."""
        mixtures = mixture_log_prob(self.component_log_prob(x), self.mixing_logits.log_softmax(1))
        return torch.logsumexp(self.class_prior.log() + mixtures, 1)

    def component_log_prob(self, x: Tensor) -> Tensor:
        """[B, C, K] ln N(z; mu_ij, diag b_ij)."""
        return self._component_log_prob(self._project(x)[0])

    def frozen_log_joint(self, features: Tensor) -> Tensor:
        """[B, C] ln omega_i + ln GMM_i(z) of the `features` of a forward pass; its gradient reaches them alone."""
        log_variances = None if self.log_variances is None else self.log_variances.detach()
        fixed = {name: each.detach() for name, each in self.family.named_parameters()}
        inputs = (features, self.means.detach(), log_variances, self._active_precision)
        components: Tensor = functional_call(self.family, fixed, inputs) if fixed else self.family(*inputs)
        return self.class_prior.log() + mixture_log_prob(components, self.mixing_logits.detach().log_softmax(1))

    def regularizer(self, kind: Regularizer = "reg", log_mixing: Tensor | None = None) -> Tensor:
        """Proposition 1: sum_i w*_i { sum_j eta_ij ln(K eta_ij) + sum_j eta*_ij / 2 sum_m (b + a^2 - ln b - 1) }.

        "reg": w* = omega and eta* = eta, both detached, because a gradient through eta* collapses each mixture
        onto one component. "reg-paper": eta* with its gradient, as printed. "kl": w* = eta* = 1, the plain
        Kullback-Leibler divergence to a standard normal and a uniform categorical prior.
        It uses b = exp(b~) without the floor, so that -ln b raises a variance that fell below it.
        `log_mixing` is the ln eta of a forward pass with these parameters, to save computing it again.
        Another family puts its own divergence in the place of the Gaussian's, 1/2 sum_m (...). All of them have one in
        closed form: from the standard normal, on the sphere from the uniform distribution.
        """
        check_choice("regularizer", kind, REGULARIZERS)
        if log_mixing is None:
            log_mixing = self.mixing_logits.log_softmax(1)
        if kind == "kl":
            categorical = log_mixing.exp() * (log_mixing + math.log(self.components))
            return (categorical + self.family.divergence(self.means, self.log_variances)).sum()
        through_mixing = kind == "reg-paper"
        if isinstance(self.family, Gaussian):
            return mixture_divergence(self.means, self.log_variances, log_mixing, self.class_prior, through_mixing)
        weights = self.class_prior[:, None] * log_mixing.exp()
        divergences = self.family.divergence(self.means, self.log_variances)
        own = (weights if through_mixing else weights.detach()) * divergences
        return (weights * (log_mixing + math.log(self.components)) + own).sum()

    @torch.no_grad()
    def set_class_prior(self, counts: Tensor | Sequence[float]) -> None:
        """omega from class counts, or any positive weights."""
        counts = torch.as_tensor(counts, dtype=torch.float64)
        if counts.shape != (self.num_classes,):
            raise ValueError(f"class counts have shape {list(counts.shape)}; this head has {self.num_classes} classes.")
        if not bool((counts > 0).all() and counts.isfinite().all()):
            raise ValueError("class counts must be positive and finite; leave out classes without a training sample.")
        self.class_prior.copy_(counts / counts.sum())

    @torch.no_grad()
    def initialize(self, x: Tensor, y: Tensor, generator: torch.Generator | None = None) -> None:
        """Start the mixture of every class from the features of that class: k-means++ and EM (`dsui.em.start`).

        Features are projected as by `project`, in training mode with the statistics of x itself. Without a generator
        the same data give the same start. A class without samples keeps its mixture.
        """
        samples = self._class_samples(x, y, least=0)
        mixtures = em.start(samples, self._mixtures, self.variance_floor, generator or _fixed_generator())
        if isinstance(self.family, Gaussian):
            self.adopt(mixtures)
            return
        log_variances = mixtures.variances.log() if self.family.has_variances else None
        start = Components(mixtures.weights, mixtures.means, log_variances)
        self._take(maximise(self.family, start, samples.z, y, em.has_few(samples, self.components)))

    @torch.no_grad()
    def refit(self, x: Tensor, y: Tensor) -> None:
        """Maximum likelihood after training: EM from the current mixtures to convergence.

        The class weights are tied to the means, so the classifier moves with them.
        """
        samples = self._class_samples(x, y, least=2)
        if isinstance(self.family, Gaussian):
            self.adopt(em.maximise(samples, self._mixtures, self.variance_floor, _fixed_generator()))
            return
        start = Components(self.mixing_weights, self.means, self.log_variances)
        self._take(maximise(self.family, start, samples.z, y))

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, num_classes={self.num_classes}, components={self.components}, "
            f"temperature={float(self.temperature):g}"
        )

    @property
    def _active_precision(self) -> Precision:
        return self.precision if self.training else self.evaluation_precision

    def _project(self, x: Tensor, update: bool = False) -> tuple[Tensor, Tensor]:
        """z and |h|, in float64 where densities are exact; by batch statistics in training mode."""
        check_features(x, self.in_features, self.training)
        exact = self._active_precision == "exact"
        x = x.to(torch.float64 if exact else torch.promote_types(self.means.dtype, torch.float32))
        if self.projection is None:
            return x, torch.linalg.vector_norm(x, dim=1)
        return self.projection.project(x, batch_statistics=self.training, update=update)

    def _scaled_class_weights(self, log_mixing: Tensor) -> Tensor:
        """[C, M] s W_i = sum_j (s eta_ij) mu_ij; without a scale `class_weights`, which the released head redefines."""
        if self.log_logit_scale is None:
            return self.class_weights
        return mixture_mean(self.means, (log_mixing + self.log_logit_scale).exp())

    def _component_log_prob(self, z: Tensor) -> Tensor:
        return self.family.log_prob(z, self.means, self.log_variances, self._active_precision)

    @property
    def _mixtures(self) -> em.Mixtures:
        variances = self.variances if self.family.has_variances else torch.ones_like(self.means)
        return em.Mixtures(self.mixing_weights.double(), self.means.double(), variances.double())

    def _class_samples(self, x: Tensor, y: Tensor, least: int) -> em.ClassSamples:
        check_features(x, self.in_features, training=False)
        check_labels(y.cpu(), len(x), self.num_classes)
        counts = torch.bincount(y, minlength=self.num_classes)
        fewest = int(counts.argmin())
        if counts[fewest] < least:
            raise ValueError(f"class {fewest} has {int(counts[fewest])} samples; refitting needs two of every class.")
        return em.ClassSamples(self._project(x)[0], y, self.num_classes)

    def adopt(self, mixtures: em.Mixtures) -> None:
        """Take mixtures of Gaussians as they are."""
        self._take(Components(mixtures.weights, mixtures.means, mixtures.variances.log()))

    def _take(self, components: Components) -> None:
        self.means.copy_(components.means)
        if components.log_variances is not None:
            self.log_variances.copy_(components.log_variances)
        self.mixing_logits.copy_(components.weights.clamp(min=SMALLEST_WEIGHT).log())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        found = state_dict.get(f"{prefix}means", self.means).shape
        if found != self.means.shape:
            raise ValueError(
                f"the state dict holds means of shape {list(found)} and this head has {list(self.means.shape)} "
                "(classes, components, features); build the head to match."
            )
        super()._load_from_state_dict(state_dict, prefix, *args)


def _fixed_generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
