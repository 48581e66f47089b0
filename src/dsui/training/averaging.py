"""Averages of the weights along training, which generalise better than the last weights.

EMA: avg += (1 - d_n) (w - avg), with d_n = min(d, (1 + n) / (10 + n)) after n updates. With the smaller decay at the
start the average forgets the first weights at once instead of in 1 / (1 - d) updates, as in TensorFlow's
`tf.train.ExponentialMovingAverage` with `num_updates`.
SWA (Izmailov et al., UAI 2018): avg += (w - avg) / (n + 1), the mean of all weights so far.

Buffers are not averaged: a mean of batch-norm statistics fits none of the networks, least of all the averaged one.
Estimate them again on the averaged weights, with `dsui.training.batch_norm.reestimate`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class WeightAverage:
    """The average of `model`'s parameters, on their device: of the last 1 / (1 - decay) updates, or of all.

    Build it after the model is on its device. The number of updates is on the device too, so that a CUDA graph can hold
    `update` and its replays are counted.
    """

    def __init__(self, model: nn.Module, decay: float | None = None) -> None:
        if decay is not None and not 0 <= decay < 1:
            raise ValueError(f"decay must be at least 0 and below 1, got {decay}; leave it out for a plain mean.")
        self.decay = decay
        named = dict(model.named_parameters())
        if not named:
            raise ValueError("the model has no parameters to average.")
        self._names = list(named)
        self._parameters: list[Tensor] = list(named.values())
        self._averages = [parameter.detach().clone() for parameter in self._parameters]
        self._updates = torch.zeros((), dtype=torch.int64, device=self._averages[0].device)

    @torch.no_grad()
    def update(self) -> None:
        """Add the present weights to the average."""
        steps = torch._foreach_sub(self._parameters, self._averages)
        # one kernel for all parameters needs a scalar of their type
        torch._foreach_mul_(steps, self._share().to(steps[0].dtype))
        torch._foreach_add_(self._averages, steps)
        self._updates.add_(1)

    @torch.no_grad()
    def restart(self) -> None:
        """Forget all weights so far, in place."""
        torch._foreach_copy_(self._averages, self._parameters)
        self._updates.zero_()

    @torch.no_grad()
    def copy_to(self, model: nn.Module) -> None:
        """Copy the averaged weights to `model`, which has the same parameters as the averaged one."""
        targets: dict[str, Tensor] = dict(model.named_parameters())
        self._check(targets, "the model")
        torch._foreach_copy_([targets[name] for name in self._names], self._averages)

    def state_dict(self) -> dict[str, Tensor]:
        """`updates`, their number, and `average.NAME` for every parameter; references, as in PyTorch."""
        return {"updates": self._updates, **{f"average.{name}": a for name, a in self._named_averages().items()}}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a `state_dict`, in place, so that a captured `update` stays valid."""
        loaded = {name.removeprefix("average."): value for name, value in state.items() if name != "updates"}
        self._check(loaded, "the state dict")
        for name, average in self._named_averages().items():
            average.copy_(loaded[name])
        self._updates.copy_(state["updates"])

    def _share(self) -> Tensor:
        """The weight of the present parameters in the average, in float64: 1 - d_n or 1 / (n + 1)."""
        n = self._updates.double()
        return 1 / (n + 1) if self.decay is None else 1 - ((1 + n) / (10 + n)).clamp(max=self.decay)

    def _named_averages(self) -> dict[str, Tensor]:
        return dict(zip(self._names, self._averages, strict=True))

    def _check(self, tensors: dict[str, Tensor], owner: str) -> None:
        found = {name: tensor.shape for name, tensor in tensors.items()}
        expected = {name: average.shape for name, average in self._named_averages().items()}
        if found != expected:
            wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
            raise ValueError(
                f"{owner} and the averaged model differ in {', '.join(wrong)}; build both for the same configuration."
            )
