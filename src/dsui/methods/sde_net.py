"""SDE-Net (Kong, Sun and Zhang, ICML 2020): a residual net as a stochastic differential equation.

    dh = f(h, t) dt + sigma g(h_0) dW,   t from 0 to 6, by Euler-Maruyama with dt = 6 / steps:
    h_{k+1} = h_k + f(h_k, k dt) dt + sigma g(h_0) sqrt(dt) e_k,   e_k ~ N(0, 1)

Each step has two turns. The first fits everything but g to the labels by cross-entropy, with sigma = 1. The second
fits g alone: E[-ln(1 - g)] over training images, E[-ln g] over x + 2 e with one e ~ N(0, 1) for all channels of a
pixel, pixels in [0, 1]. At test sigma is 50, so that images which g finds foreign drown in noise, and N draws are
averaged:

    p = mean_n softmax(W z_n + b)
    I = H[p] - mean_n H[p_n]

Its own uncertainties are "diffusion", g(h_0), and "mutual_information", I, which is large where the draws disagree.

The parts are in `dsui.backbones.sde`. In the second turn the images pass the frozen stem in evaluation mode. So noisy
images neither change batch-norm statistics nor share them with clean ones, and g is trained on what it sees at test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.backbones.neck import Neck
from dsui.backbones.resnet import STAGES
from dsui.backbones.sde import WIDTH, Diffusion, Drift, Pooling, initialise_linear, resnet18_stem, small_stem
from dsui.checks import check_between
from dsui.methods.method import MOST_SAMPLES, Method, Turn
from dsui.methods.network import OutputLayer, evaluation_mode
from dsui.outputs import Outputs
from dsui.recipe import Recipe
from dsui.scores import log_mean_exp, mutual_information

HORIZON = 6.0
MOST_STEPS = 1000
"""Of the horizon."""
TRAINING_SIGMA = 1.0
FOREIGN_NOISE = 2.0
"""Standard deviation of the noise that makes a training image foreign, for pixels in [0, 1]."""
DIFFUSION_RATES = {"sgd": 0.05, "adam": 1.0}
"""The learning rate of g as a multiple of the recipe's. For SGD it is the published 0.005 / 0.1. Adam's steps do not
grow with the gradient: with a twentieth of its rate, g stays near its start, one half, for hundreds of steps."""


class SDENet(Method):
    """On "small" the published small net; on "resnet18" its first three stages and a drift as wide as the fourth.

    `samples` is N, the number of draws for a prediction; stem and g run once for all of them.
    """

    needs_images = True
    draws: bool = True
    backbones = ("small", "resnet18")
    foreign_scale: Tensor

    def __init__(
        self,
        backbone: str,
        channels: int,
        num_classes: int,
        recipe: Recipe,
        *,
        steps: int = 6,
        test_sigma: float = 50.0,
        samples: int = 10,
    ) -> None:
        super().__init__()
        check_between("steps", steps, 1, MOST_STEPS)
        check_between("samples", samples, 1, MOST_SAMPLES)
        if not 0 <= test_sigma < math.inf:
            raise ValueError(f"test_sigma must be finite and not negative, got {test_sigma}.")
        self.steps, self.test_sigma, self.passes = steps, test_sigma, samples
        self.diffusion_rate = DIFFUSION_RATES[recipe.optimizer]
        if backbone == "small":
            self.stem, width = small_stem(channels), WIDTH
        else:
            self.stem, width = resnet18_stem(channels, recipe.released_start), STAGES[-1]
        self.drift, self.diffusion, self.pooling = Drift(width), Diffusion(width), Pooling(width)
        self.neck = Neck(width, dropout=recipe.dropout) if recipe.neck else None
        self.output = initialise_linear(
            OutputLayer(width if self.neck is None else self.neck.out_features, num_classes)
        )
        scale = FOREIGN_NOISE / torch.tensor(recipe.std).view(-1, 1, 1)
        self.register_buffer("foreign_scale", scale, persistent=False)

    def turns(self) -> Sequence[Turn]:
        of_diffusion = tuple(self.diffusion.parameters())
        excluded = {id(parameter) for parameter in of_diffusion}
        return (
            Turn(tuple(parameter for parameter in self.parameters() if id(parameter) not in excluded)),
            Turn(of_diffusion, self.diffusion_rate),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, C]; in the second turn log-odds of g [2 B], of the images and then of their noisy copies."""
        if self.turn == 1:
            return self._diffusion_odds(images)
        h = self.stem(images).float()
        logits: Tensor = self.output(self._features(h, self.diffusion(h).float().sigmoid(), TRAINING_SIGMA))
        return logits

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        if self.turn == 1:
            inside, outside = output.float().chunk(2)
            value = F.softplus(inside).mean() + F.softplus(-outside).mean()
            sizes = {"diffusion_inside": inside.sigmoid().mean(), "diffusion_outside": outside.sigmoid().mean()}
            self.terms = {name: part.detach() for name, part in {"diffusion_loss": value, **sizes}.items()}
            return value
        value = F.cross_entropy(output.float(), labels)
        self.terms = {"cross_entropy": value.detach()}
        return value

    def logits(self, output: Tensor) -> Tensor:
        return output

    def predict(self, images: Tensor) -> Outputs:
        """The features are their mean over the draws, so that W z + b of them is the mean of the draws' logits. The
        prediction is the mean of the probabilities instead, whose logits no last layer gives."""
        h = self.stem(images).float()
        g = self.diffusion(h).double().sigmoid()
        features = torch.stack([self._features(h, g.float(), self.test_sigma) for _ in range(self.passes)], 1)
        samples = self.output(features).double().log_softmax(2)
        own = {"diffusion": g, "mutual_information": mutual_information(samples)}
        return Outputs(features.mean(1), log_mean_exp(samples), samples=samples.float(), own=own)

    def _features(self, h: Tensor, g: Tensor, sigma: float) -> Tensor:
        """The input of the last layer, after one draw that starts from h_0."""
        features: Tensor = self.pooling(euler_maruyama(self.drift, h, sigma * g, self.steps))
        return features if self.neck is None else self.neck(features)

    def _diffusion_odds(self, images: Tensor) -> Tensor:
        noise = torch.randn_like(images[:, :1])
        with torch.no_grad(), evaluation_mode(self.stem):
            h = self.stem(torch.cat([images, images + self.foreign_scale * noise]))
        odds: Tensor = self.diffusion(h.float())
        return odds


def euler_maruyama(drift: Callable[[Tensor, float], Tensor], h: Tensor, noise: Tensor, steps: int) -> Tensor:
    """h at t = 6 from h_0 [B, ...]; `noise` [B] is sigma g, the same at every step."""
    dt = HORIZON / steps
    scale = math.sqrt(dt) * noise.view(-1, *[1] * (h.ndim - 1))
    for k in range(steps):
        h = h + drift(h, k * dt) * dt + scale * torch.randn_like(h)
    return h
