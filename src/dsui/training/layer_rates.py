"""Learning rates by layer: a factor on the recipe's rate for every parameter of a backbone.

    factor = backbone_rate * layer_decay^(L - 1 - l),    l = 0 .. L - 1 the layer, counted from the input

The head and the neck keep the recipe's rate. Layers are those of `dsui.backbones.freezing.depths`.
"""

from __future__ import annotations

from torch import nn

from dsui.backbones.freezing import depths
from dsui.methods.network import FeatureNetwork
from dsui.recipe import Recipe


def rate_factors(method: nn.Module, recipe: Recipe) -> dict[int, float]:
    """By the id of each parameter whose factor is not 1."""
    if recipe.backbone_rate == 1 and recipe.layer_decay == 1:
        return {}
    factors: dict[int, float] = {}
    for network in method.modules():
        if isinstance(network, FeatureNetwork):
            layers, parameters = depths(network.backbone), dict(network.backbone.named_parameters())
            last = max(layers.values(), default=0)
            for name, layer in layers.items():
                factors[id(parameters[name])] = recipe.backbone_rate * recipe.layer_decay ** (last - layer)
    return factors
