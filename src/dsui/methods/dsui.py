"""DS-UI: the network with the MoGMM-FC layer and a dual-supervised objective; see `dsui.head` and `dsui.objectives`.

Training puts every feature on the sphere of radius sqrt(M). Predicting, those that were shorter stay inside it:

    y = s W z min(1, |h| / sqrt(M))

sqrt(M) is the root mean square of |h| over training images. Images that the network does not know make short features,
so that the same classes are predicted with less confidence; longer than usual makes no more confident. That features
trained on a sphere know more off it is T2FNorm's observation (Regmi et al., CVPR Workshops 2024). Densities stay those
of the sphere, where the mixtures live.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsui.checks import check_positive
from dsui.head import SCALE_AT_START, HeadOutput, MoGMMHead
from dsui.methods.method import Method
from dsui.methods.network import FeatureNetwork
from dsui.objectives import DualSupervisedLoss, released_scores
from dsui.outputs import Outputs, share_of_radius
from dsui.recipe import Recipe
from dsui.released import ReleasedHead

ALIVE = 0.01
"""A component that holds at least this share of its class is alive."""


class DualSupervised(Method):
    """In phase 0, the recipe's density warm-up, cross-entropy of the tied classifier alone.

    `kappa` sets the temperature of the class scores, tau = max(1, M / kappa): how many nats the features' M dimensions
    may say together. `scale` is where the logit scale starts, times M.
    """

    def __init__(
        self,
        backbone: str,
        channels: int,
        num_classes: int,
        recipe: Recipe,
        *,
        kappa: float = 64.0,
        scale: float = SCALE_AT_START,
    ) -> None:
        check_positive("kappa", kappa)
        check_positive("scale", scale)
        super().__init__()
        released = recipe.head == "released"
        self.network = FeatureNetwork(backbone, channels, recipe, ending="normalized" if released else "linear")
        features = self.network.out_features
        self.head: MoGMMHead = (
            ReleasedHead(features, num_classes, recipe.components)
            if released
            else MoGMMHead(
                features, num_classes, recipe.components, logit_scale=scale, temperature=max(1.0, features / kappa)
            )
        )
        self.objective = DualSupervisedLoss(recipe.objective, recipe.rho, recipe.gamma, recipe.regularizer)
        self.warm_up, self.initializes = recipe.density_warm_up, recipe.initialize

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

    def mixture_parameters(self) -> Iterable[nn.Parameter]:
        return self.head.parameters()

    def set_class_counts(self, counts: Tensor) -> None:
        self.head.set_class_prior(counts.tolist())

    def phase_at(self, epoch: int) -> int:
        return int(epoch >= self.warm_up)

    @torch.no_grad()
    def begin_phase(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        if self.phase == 0 or not self.initializes:
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
    def objective_name(cls, recipe: Recipe) -> str:
        return recipe.objective

    def log_row(self) -> dict[str, object]:
        weights = self.head.mixing_weights.detach()
        return {
            "component_usage": [[round(share, 4) for share in row] for row in weights.tolist()],
            "alive": [round(share, 4) for share in (weights >= ALIVE).float().mean(1).tolist()],
            "logit_scale": torch.as_tensor(self.head.logit_scale).item(),
            "mean_log_variance": self.head.log_variances.mean().item(),
        }
