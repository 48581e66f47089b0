"""The optimizer of a recipe: which parameters decay, and a learning rate that a captured graph reads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from dsui.methods.method import Method, Turn
from dsui.recipe import Recipe
from dsui.training.layer_rates import rate_factors

ADAM_MOMENTUM = 0.9
FACTOR = "factor"
"""Key of a parameter group: what its rate is multiplied by, where that is not 1."""


def parameter_groups(method: Method, turn: Turn, recipe: Recipe) -> list[dict[str, object]]:
    """The parameters of a turn that decay and those that do not: the recipe decides about norms and biases, the method
    about its mixture."""
    mixture = {id(parameter) for parameter in method.mixture_parameters()}
    factors = rate_factors(method, recipe)
    undecayed = {id(parameter) for parameter in method.undecayed_parameters()}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {(recipe.weight_decay, 1.0): [], (0.0, 1.0): []}
    for parameter in turn.parameters:
        is_matrix = parameter.ndim > 1  # norms and biases are vectors
        decays = method.decay_mixture if id(parameter) in mixture else recipe.decay_norms or is_matrix
        decays = decays and id(parameter) not in undecayed
        group = recipe.weight_decay if decays else 0.0, factors.get(id(parameter), 1.0)
        groups.setdefault(group, []).append(parameter)
    return [
        {"params": params, "weight_decay": decay} | ({} if factor == 1 else {FACTOR: factor})
        for (decay, factor), params in groups.items()
        if params
    ]


def make_optimizer(method: Method, turn: Turn, recipe: Recipe, device: torch.device) -> Optimizer:
    """On a GPU the rate is a device tensor and the update one fused kernel, so that a CUDA graph can hold it."""
    groups = parameter_groups(method, turn, recipe)
    rate: float | Tensor = recipe.peak_rate
    fused = device.type == "cuda"
    if fused:
        rate = torch.tensor(recipe.peak_rate, device=device)
    if recipe.optimizer == "sgd":
        momentum = recipe.momentum if turn.momentum is None else turn.momentum
        return SGD(groups, lr=rate, momentum=momentum, nesterov=recipe.nesterov, fused=fused)
    kind = AdamW if recipe.decoupled_decay else Adam
    betas = (ADAM_MOMENTUM if turn.momentum is None else turn.momentum, 0.999)
    return kind(groups, lr=rate, betas=betas, fused=fused, capturable=fused)


def set_rate(optimizer: Optimizer, rate: Tensor) -> None:
    """Written into the device tensor where there is one, so that a captured graph sees it."""
    for group in optimizer.param_groups:
        own = rate * group.get(FACTOR, 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(own)
        else:
            group["lr"] = float(own)


def clip_gradients(parameters: Sequence[nn.Parameter], largest: float) -> None:
    """Scale all gradients so that their joint norm is at most `largest`; 0 leaves them as they are."""
    if largest > 0:
        nn.utils.clip_grad_norm_(parameters, largest)
