"""With which weights a run ends: its last ones, their average, or those that early stopping kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from dsui.data.augment import splitmix64
from dsui.errors import DsuiError
from dsui.methods.method import Method
from dsui.recipe import Recipe
from dsui.training.averaging import WeightAverage
from dsui.training.batch_norm import reestimate
from dsui.training.distributed import World
from dsui.training.early_stopping import EarlyStopping, first_epoch
from dsui.training.held_out import HeldOutMeasurement
from dsui.training.reporter import BEST_EPOCH, HELD_OUT_ACCURACY, HELD_OUT_LOSS

Inputs = Callable[[], Iterable[Tensor]]
"""Those of an epoch as the network is trained on them. They are handed in when they are needed: an object that kept
them would hold the trainer, and so the connections to other processes, beyond its end."""


class Ending:
    """Of one run. `stopping` is None where the recipe has no patience."""

    def __init__(self, method: Method, name: str, recipe: Recipe, seed: int, steps_per_epoch: int) -> None:
        self.method, self.recipe, self.seed = method, recipe, seed
        decay = recipe.ema_decay if recipe.average == "ema" else None
        self.average = None if recipe.average == "none" else WeightAverage(method, decay)
        first = first_epoch(recipe, steps_per_epoch)
        self.stopping = EarlyStopping(recipe.patience, first) if recipe.patience > 0 else None
        if self.stopping is not None and len(method.schedule_starts()) > 1:
            raise DsuiError(
                f"{name} trains its parts one after another, so it cannot stop early; leave out --set patience."
            )

    def end_epoch(self, epoch: int) -> None:
        begins = min(self.recipe.swa_start * self.recipe.epochs, self.recipe.epochs - 1)
        if self.average is not None and self.recipe.average == "swa" and epoch >= begins:
            self.average.update()

    def is_over(self, epoch: int) -> bool:
        """Whether the run stops early after this epoch."""
        return self.stopping is not None and self.stopping.is_over(epoch)

    @property
    def sentence(self) -> str | None:
        """What the user should know of the end."""
        return None if self.stopping is None else self.stopping.sentence(self.recipe.epochs)

    def held_out_figures(
        self,
        epoch: int,
        measurement: HeldOutMeasurement | None,
        inputs: Inputs,
        device: torch.device,
        world: World,
    ) -> dict[str, float]:
        """Measured after this epoch, if it is due; early stopping sees them, in all processes alike."""
        if measurement is None or not measurement.due(epoch):
            return {}
        with nullcontext() if self.stopping is None else self._as_ended(inputs):
            found = measurement.measure(device)
            figures = {HELD_OUT_ACCURACY: found.accuracy, HELD_OUT_LOSS: found.loss}
            if self.stopping is None:
                return figures
            figures[HELD_OUT_LOSS] = loss = world.of_leader(found.loss, device)
            if self.method.phase_at(epoch) == self.method.phase_at(self.recipe.epochs - 1):
                self.stopping.see(epoch, loss, self.method.state_dict())
        return {**figures, BEST_EPOCH: self.stopping.epoch}

    @torch.no_grad()
    def put_weights(self, inputs: Inputs) -> None:
        """Put the weights in place with which the run ends."""
        if self.stopping is not None and self.stopping.weights:
            self.method.load_state_dict(self.stopping.weights)
        else:
            self._put_average(inputs)

    @contextmanager
    def _as_ended(self, inputs: Inputs) -> Iterator[None]:
        """With the weights that the run would end with now; afterwards the method is as it was."""
        kept = {name: value.clone() for name, value in self.method.state_dict().items()}
        try:
            self._put_average(inputs)
            yield
        finally:
            self.method.load_state_dict(kept)

    @torch.no_grad()
    def _put_average(self, inputs: Inputs) -> None:
        """Averaged weights, if there are any, with batch-norm statistics of their own."""
        if self.average is not None and self.average.state_dict()["updates"] > 0:
            self.average.copy_to(self.method)
            torch.manual_seed(splitmix64(self.seed) >> 1)  # layers that sample draw the same after a resume
            reestimate(self.method, inputs())
