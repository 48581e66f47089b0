"""DS-UI: the network with the MoGMM-FC layer and a dual-supervised objective; see `dsui.head` and `dsui.objectives`.

Training puts every feature on the sphere of radius sqrt(M). Predicting, those that were shorter stay inside it:

    y = s W z min(1, |h| / sqrt(M))

sqrt(M) is the root mean square of |h| over training images. Images that the network does not know give short features,
so the same classes are predicted with less confidence; features longer than usual do not raise it. T2FNorm observed
that features trained on a sphere tell more when they may leave it (Regmi et al., CVPR Workshops 2024). Densities stay
those of the sphere, where the mixtures live.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsui.backbones.neck import Ending
from dsui.checks import check_positive
from dsui.companions import Companion, check_companion
from dsui.families.registry import Covariance, name_of
from dsui.head import SCALE_AT_START, MoGMMHead, Regularizer
from dsui.head_output import HeadOutput
from dsui.length import LogNormalLength
from dsui.methods.method import Method
from dsui.methods.network import FeatureNetwork
from dsui.objectives import (
    OWN_DENSITY,
    DualSupervisedLoss,
    Objective,
    check_bounded,
    released_scores,
    sign_of_divergence,
)
from dsui.outputs import Outputs, share_of_radius
from dsui.recipe import Recipe
from dsui.released import ReleasedHead

MOST_COMPONENTS = 1024
"""Per class; means and variances grow with them."""
KAPPA = 64.0
"""The nats that all feature dimensions together contribute to a class score, by default."""
ALIVE = 0.01
"""A component that holds at least this share of its class is alive."""
LAYER = {"project": True, "logit_scale": "learned", "scale": SCALE_AT_START, "kappa": KAPPA}
"""The options of the layer that the paper does not have, with their defaults."""


class DualSupervised(Method):
    """Phase 0, the density warm-up, trains by the cross-entropy of the tied classifier alone.

    head             the mixture layer: ours, or that of the authors' code
    components       Gaussians per class
    objective        which dual-supervised loss; `dsui.objectives` has their formulas
    rho              weight of the push; None is the objective's own default
    gamma            weight of the regulariser
    regularizer      which regulariser, or None
    density_warm_up  epochs of cross-entropy before the density terms begin
    initialize       whether the mixtures start from k-means and EM when they begin
    decay_mixture    whether means, variances, mixing weights and the logit scale decay
    kappa            how many nats the M feature dimensions may contribute together to a class score: its temperature
                     is tau = max(1, M / kappa); None is a temperature of 1
    scale            where a learned logit scale starts, times M
    project          whether features are projected to the sphere
    logit_scale      whether logits have a learned scale, or the scale one
    companion        another loss beside the objective, or None (`dsui.companions`)
    companion_weight its weight
    balanced_components  whether the components of a class explain equally many samples (`dsui.balancing`)
    length           what the length of a feature does at test time: "ball" as above, or "density", a factor of the
                     density of each class (`dsui.length`), with logits as on the sphere
    family           what components are: Gaussians or another family (`dsui.families`)
    covariance       that of Gaussians: a diagonal, one full matrix for all, or a diagonal and some directions
    rank             how many directions a covariance of low rank has

    The layer as printed has project False, logit_scale "one" and kappa None.
    """

    options_in_epochs: ClassVar[tuple[str, ...]] = ("density_warm_up",)
    takes_copies: bool = True
    takes_doubles: bool = True
    adjustable: bool = True

    def __init__(
        self,
        backbone: str,
        channels: int,
        num_classes: int,
        recipe: Recipe,
        *,
        head: Literal["mogmm", "released"] = "mogmm",
        components: int = 8,
        objective: Objective = "bounded",
        rho: float | None = None,
        gamma: float = 1e-4,
        regularizer: Regularizer | None = "reg",
        density_warm_up: int = 0,
        initialize: bool = False,
        decay_mixture: bool = False,
        kappa: float | None = KAPPA,
        scale: float = SCALE_AT_START,
        project: bool = True,
        logit_scale: Literal["learned", "one"] = "learned",
        companion: Companion | None = None,
        companion_weight: float = 1.0,
        balanced_components: bool = False,
        length: Literal["ball", "density"] = "ball",
        family: str = "gaussian",
        covariance: Covariance = "diagonal",
        rank: int | None = None,
    ) -> None:
        if kappa is not None:
            check_positive("kappa", kappa)
        check_positive("scale", scale)
        layer = {"project": project, "logit_scale": logit_scale, "scale": scale, "kappa": kappa}
        _check_layer(head, layer)
        name_of(family, covariance, rank, project)
        if head == "released" and (family, covariance) != ("gaussian", "diagonal"):
            raise ValueError("the layer of head=released is Gaussian with a diagonal; leave out family and covariance.")
        check_bounded(objective, projects=project and head == "mogmm")
        check_companion(companion, projects=project and head == "mogmm")
        super().__init__()
        self.network = FeatureNetwork(backbone, channels, recipe, ending=_ending(head, project))
        features = self.network.out_features
        self.head: MoGMMHead = (
            ReleasedHead(features, num_classes, components)
            if head == "released"
            else MoGMMHead(
                features,
                num_classes,
                components,
                project=project,
                logit_scale=scale if logit_scale == "learned" else None,
                temperature=1.0 if kappa is None else max(1.0, features / kappa),
                covariance=covariance,
                family=family,
                rank=rank,
            )
        )
        self.objective = DualSupervisedLoss(
            objective, rho, gamma, regularizer, companion, companion_weight, balanced_components
        )
        if length == "density" and self.head.projection is None:
            raise ValueError("length=density is about what the sphere drops; choose length=ball, or project=true.")
        self.length = LogNormalLength(num_classes) if length == "density" else None
        self.density_warm_up, self.initialize, self.decay_mixture = density_warm_up, initialize, decay_mixture
        self.capturable = objective != "literal"  # which looks at its own value, to stop when it diverges
        self.partial_gradients = density_warm_up > 0  # variances and mixing weights get none before the densities begin

    def forward(self, images: Tensor) -> HeadOutput:
        output: HeadOutput = self.head(self.network(images))
        return output

    def loss(self, output: HeadOutput, labels: Tensor) -> Tensor:
        if self.log_shares is not None:
            output = replace(output, logits=self.adjusted(output.logits))
        if self.phase == 0:
            value = F.cross_entropy(output.logits, labels)
            self.terms = {"cross_entropy": value.detach()}
            return value
        value = self.objective(output, labels, self.head)
        self.terms = self.objective.terms
        return value

    def logits(self, output: HeadOutput) -> Tensor:
        return output.logits

    def rows(self, output: HeadOutput, rows: slice) -> HeadOutput:
        return output.rows(rows)

    def mixture_parameters(self) -> Iterable[nn.Parameter]:
        return self.head.parameters()

    def set_class_counts(self, counts: Tensor) -> None:
        self.head.set_class_prior(counts.tolist())

    def phase_at(self, epoch: int) -> int:
        return int(epoch >= self.density_warm_up)

    @torch.no_grad()
    def complete(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Fit the lengths of the classes' features."""
        if self.length is None:
            return
        norms, labels = zip(*((self(images).norm, y) for images, y in batches), strict=True)
        self.length.fit(torch.cat(norms), torch.cat(labels))

    @torch.no_grad()
    def begin_phase(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        if self.phase == 0 or not self.initialize:
            return
        self.network.eval()
        features, labels = zip(*((self.network(x).float(), y) for x, y in batches), strict=True)
        self.network.train()
        self.head.initialize(torch.cat(features), torch.cat(labels))

    def predict(self, images: Tensor) -> Outputs:
        output: HeadOutput = self(images)
        weight = (self.head.class_weights * self.head.logit_scale).to(output.features.dtype)
        released = isinstance(self.head, ReleasedHead)
        log_joint, class_scores = output.log_joint, output.class_scores
        if self.length is not None:
            lengths = self.length.log_prob(output.norm)
            log_joint, class_scores = log_joint + lengths, class_scores + lengths
        if self.head.projection is None or self.length is not None:
            features, logits, norm = output.features, output.logits, None
        else:
            norm = output.norm
            share = share_of_radius(norm, weight.shape[1])[:, None]
            features, logits = output.features * share, output.logits * share
        return Outputs(
            features,
            logits,
            norm=norm,
            class_scores=released_scores(output, self.head) if released else class_scores,
            log_joint=log_joint,
            weight=weight,
        )

    @classmethod
    def objective_name(cls, options: Mapping[str, Any]) -> str:
        return str(options["objective"])

    @classmethod
    def option_ranges(cls, options: Mapping[str, Any], recipe: Recipe) -> Iterator[tuple[str, bool, str]]:
        rho, epochs = options["rho"], recipe.epochs
        yield "components", 1 <= options["components"] <= MOST_COMPONENTS, f"between 1 and {MOST_COMPONENTS:,}"
        yield "gamma", 0 <= options["gamma"] < math.inf, "at least 0 and finite"
        yield "rho", rho is None or 0 <= rho < math.inf, "null, or at least 0 and finite"
        yield "density_warm_up", 0 <= options["density_warm_up"] <= epochs, f"between 0 and the {epochs} epochs"

    def warning(self, epochs: Sequence[Mapping[str, Any]]) -> str | None:
        return sign_of_divergence([row[OWN_DENSITY] for row in epochs if OWN_DENSITY in row])

    def log_row(self) -> dict[str, object]:
        weights = self.head.mixing_weights.detach()
        return {
            "component_usage": [[round(share, 4) for share in row] for row in weights.tolist()],
            "alive": [round(share, 4) for share in (weights >= ALIVE).float().mean(1).tolist()],
            "logit_scale": torch.as_tensor(self.head.logit_scale).item(),
            **self.head.family.summary(self.head.log_variances),
        }


def _ending(head: str, project: bool) -> Ending:
    """How the paper's neck ends before this layer; see `dsui.backbones.neck`."""
    if head == "released":
        return "normalized"
    return "linear" if project else "activated"


def _check_layer(head: str, layer: Mapping[str, object]) -> None:
    """Raise where one option of the layer makes another one meaningless; `layer` holds those of `LAYER`."""
    changed = [name for name, value in layer.items() if value != LAYER[name]]
    if head == "released" and changed:
        raise ValueError(
            f"the layer of head=released has neither sphere nor logit scale nor temperature; leave out "
            f"{' and '.join(changed)}, or choose head=mogmm."
        )
    if layer["logit_scale"] == "one" and "scale" in changed:
        raise ValueError("scale is where a learned logit scale starts; leave it out, or leave out logit_scale=one.")
