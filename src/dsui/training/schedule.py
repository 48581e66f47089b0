"""The learning rate of every step, from peak rate P and E epochs of S steps.

One-cycle, constant within epoch e = 0 .. E - 1, as in the authors' script; cycle L, half H = L // 2:

    e < H          P (0.1 + 0.9 e / H)                              up from a tenth of the peak
    H <= e < L     P (0.1 + 0.9 (L - e) / (L - H))                  the peak at e = H, then down
    L <= e         P/10 - (P/10 - F) (e - L) / (E - L)              the tail, towards F = min(1e-6, P/10)

Cosine, with the step t = 0 .. ES - 1 and a warm-up of W steps:

    t < W          P (t + 1) / W                                    the peak at t = W - 1
    W <= t         P cos(pi/2 (t - W) / (ES - W))^2                 half a cosine from P to 0, where training ends

The square is (1 + cos pi x) / 2 without its cancellation near x = 1, so the last rate of a long training is exact.

Held cosine: the cosine, which keeps its value after the share `swa_start` of the steps. Weights that are averaged there
(`average: swa`) keep moving, and their mean lies in a flatter place than any of them (Izmailov et al., UAI 2018).

A method with stages (`Method.schedule_starts`) has the whole schedule once for each, with lengths shrunk like the
epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from dsui.checks import check_at_least
from dsui.recipe import Recipe

LOWEST = 1e-6
"""Where the one-cycle's tail would end one epoch after the last."""


def rates(recipe: Recipe, steps_per_epoch: int, starts: Sequence[int] = (0,)) -> Tensor:
    """[epochs * steps_per_epoch] float64; the schedule begins in each of the epochs `starts`, the first of them 0."""
    check_at_least("steps_per_epoch", steps_per_epoch, 1)
    lengths = [end - start for start, end in pairwise((*starts, recipe.epochs)) if end > start]
    return torch.cat([_stage_rates(_shrunk(recipe, length), steps_per_epoch) for length in lengths])


def _shrunk(recipe: Recipe, epochs: int) -> Recipe:
    """The recipe for a stage of that many epochs."""
    if epochs == recipe.epochs:
        return recipe
    cycle, warm_up = (length * epochs // recipe.epochs for length in (recipe.cycle, recipe.rate_warm_up))
    return replace(recipe, epochs=epochs, cycle=max(cycle, 1), rate_warm_up=warm_up)


def _stage_rates(recipe: Recipe, steps_per_epoch: int) -> Tensor:
    match recipe.schedule:
        case "one-cycle":
            return one_cycle(recipe.peak_rate, recipe.cycle, recipe.epochs).repeat_interleave(steps_per_epoch)
        case "cosine" | "held-cosine":
            steps = recipe.epochs * steps_per_epoch
            falling = cosine(recipe.peak_rate, recipe.rate_warm_up * steps_per_epoch, steps)
            if recipe.schedule == "held-cosine":
                hold = int(recipe.swa_start * steps)
                falling[hold:] = falling[hold].item()
            return falling


def one_cycle(peak: float, cycle: int, epochs: int) -> Tensor:
    """[epochs], one rate for each."""
    half = cycle // 2
    up = 0.1 + 0.9 * (torch.arange(half, dtype=torch.float64) / max(half, 1))
    down = 0.1 + 0.9 * (torch.arange(cycle - half, 0, -1, dtype=torch.float64) / (cycle - half))
    tail = torch.arange(epochs - cycle, dtype=torch.float64) / max(epochs - cycle, 1)
    start = peak / 10
    return torch.cat([peak * up, peak * down, start - (start - min(LOWEST, start)) * tail])


def cosine(peak: float, warm_up: int, steps: int) -> Tensor:
    """[steps], the first `warm_up` of them rising."""
    up = torch.arange(1, warm_up + 1, dtype=torch.float64) / max(warm_up, 1)
    down = torch.arange(steps - warm_up, dtype=torch.float64) / (steps - warm_up)
    return peak * torch.cat([up, torch.cos(math.pi / 2 * down) ** 2])
