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
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsui.checks import check_positive
from dsui.head import SCALE_AT_START, HeadOutput, MoGMMHead, Regularizer
from dsui.methods.method import Method
from dsui.methods.network import FeatureNetwork
from dsui.objectives import DualSupervisedLoss, Objective, released_scores
from dsui.outputs import Outputs, share_of_radius
from dsui.recipe import Recipe
from dsui.released import ReleasedHead

MOST_COMPONENTS = 1024
"""Per class; means and variances grow with them."""
ALIVE = 0.01
"""A component that holds at least this share of its class is alive."""


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
                     is tau = max(1, M / kappa)
    scale            where the logit scale starts, times M
    """

    options_in_epochs: ClassVar[tuple[str, ...]] = ("density_warm_up",)
    takes_copies: bool = True
    takes_doubles: bool = True

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
        kappa: float = 64.0,
        scale: float = SCALE_AT_START,
    ) -> None:
        check_positive("kappa", kappa)
        check_positive("scale", scale)
        super().__init__()
        released = head == "released"
        self.network = FeatureNetwork(backbone, channels, recipe, ending="normalized" if released else "linear")
        features = self.network.out_features
        self.head: MoGMMHead = (
            ReleasedHead(features, num_classes, components)
            if released
            else MoGMMHead(features, num_classes, components, logit_scale=scale, temperature=max(1.0, features / kappa))
        )
        self.objective = DualSupervisedLoss(objective, rho, gamma, regularizer)
        self.density_warm_up, self.initialize, self.decay_mixture = density_warm_up, initialize, decay_mixture
        self.capturable = objective != "literal"  # which looks at its own value, to stop when it diverges
        self.partial_gradients = density_warm_up > 0  # variances and mixing weights get none before the densities begin

    def forward(self, images: Tensor) -> HeadOutput:
        output: HeadOutput = self.head(self.network(images))
        return output

    def loss(self, output: HeadOutput, labels: Tensor) -> Tensor:
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
        if self.head.projection is None:
            features, logits, norm = output.features, output.logits, None
        else:
            norm = output.norm
            share = share_of_radius(norm, weight.shape[1])[:, None]
            features, logits = output.features * share, output.logits * share
        return Outputs(
            features,
            logits,
            norm=norm,
            class_scores=released_scores(output, self.head) if released else output.class_scores,
            log_joint=output.log_joint,
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

    def log_row(self) -> dict[str, object]:
        weights = self.head.mixing_weights.detach()
        return {
            "component_usage": [[round(share, 4) for share in row] for row in weights.tolist()],
            "alive": [round(share, 4) for share in (weights >= ALIVE).float().mean(1).tolist()],
            "logit_scale": torch.as_tensor(self.head.logit_scale).item(),
            "mean_log_variance": self.head.log_variances.mean().item(),
        }
