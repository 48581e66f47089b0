"""One training step: gather, augment, copy; then for each turn of the method forward, loss, backward, clip and update.

It is one function of device tensors: the step counter, the epoch's order and the table of learning rates lie on the
device, and dropout's generator is seeded from (seed, step, process) before every step. So it can run as it is or as one
CUDA graph, in both cases also with its forward and backward pass compiled, and a resumed run continues as if it had
never stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from dsui.data.augment import Transform, splitmix64
from dsui.data.pipeline import Batch, ResidentLoader
from dsui.fused import ready_to_compile
from dsui.methods.method import Method, Turn
from dsui.recipe import Recipe
from dsui.training.averaging import WeightAverage
from dsui.training.copies import Copies
from dsui.training.distributed import World
from dsui.training.meter import Meter
from dsui.training.optimizer import clip_gradients, set_rate
from dsui.training.sharpness import SharpnessAware, frozen_statistics

Mode = Literal["eager", "compiled", "graph"]
TRIAL_STEPS = 3


def own_stream(device: torch.device) -> AbstractContextManager[object]:
    """A stream to build and run a trainer in: gradients on the default stream could not be captured in a graph."""
    return torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext()


class LossModule(nn.Module):
    """Images and labels to loss and logits, as one module that DDP and torch.compile can wrap.

    Copies of the images stand behind them. Outliers, where a method learns from them, are the images beyond the labels.
    The logits are those of the images themselves.
    """

    def __init__(self, method: Method, copies: Copies, autocast: AbstractContextManager[object]) -> None:
        super().__init__()
        self.method, self.copies, self.autocast = method, copies, autocast

    def forward(self, images: Tensor, labels: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        with self.autocast:
            output = self.method(images)
        loss, own = self.copies.loss(self.method, output, labels, step)
        return loss, self.method.logits(output).detach()[:own] if self.method.turn == 0 else loss.detach()


class Update:
    """One turn of a method with its optimizer, and with sharpness-aware minimisation where the recipe has a radius."""

    def __init__(self, turn: Turn, optimizer: Optimizer, recipe: Recipe) -> None:
        self.turn, self.optimizer = turn, optimizer
        self.sharpness = SharpnessAware(turn.parameters, recipe.sam) if recipe.sam > 0 else None


@dataclass(frozen=True)
class Optimization:
    """How the weights move: an optimizer for each turn of the method, the rate of every step [steps], and the average
    of the weights, if any."""

    recipe: Recipe
    optimizers: Sequence[Optimizer]
    rates: Tensor
    average: WeightAverage | None


@dataclass(frozen=True)
class DeviceData:
    """The images a step gathers on the device; None where they are streamed, or where there are no outliers."""

    images: ResidentLoader | None
    outliers: ResidentLoader | None
    transform: Transform
    copies: Copies
    steps_per_epoch: int


@dataclass(frozen=True)
class Execution:
    """Where and how steps run: compiled, captured as a CUDA graph, or both."""

    device: torch.device
    world: World
    seed: int
    compiled: bool
    captured: bool


class TrainingStep:
    """Call it once per step; `steps_done` counts. Streamed batches are passed in, others are gathered on the device.
    With outliers there are two batches, and the second one is of foreign images."""

    def __init__(
        self, method: Method, loss_module: nn.Module, data: DeviceData, optimization: Optimization, execution: Execution
    ) -> None:
        recipe, device, world = optimization.recipe, execution.device, execution.world
        self.method, self.recipe, self.average = method, recipe, optimization.average
        self.updates = [Update(*pair, recipe) for pair in zip(method.turns(), optimization.optimizers, strict=True)]
        if execution.compiled:
            ready_to_compile()
        self.loss_module = torch.compile(loss_module) if execution.compiled else loss_module
        self.data, self.device, self.captured = data, device, execution.captured
        self.seed = splitmix64(splitmix64(execution.seed) ^ world.rank)
        self.rates = optimization.rates.to(device)
        self.meter = Meter(device, recipe.batch // world.size)
        self.counter = torch.zeros((), dtype=torch.int64, device=device)
        self.order = torch.zeros(0, dtype=torch.int64, device=device)
        self.outlier_order = self.order
        self.steps_done = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def begin_epoch(self, order: Tensor, outlier_order: Tensor | None = None) -> None:
        """`order` [steps, B]: the epoch's indices, this process's part of each batch; `outlier_order` likewise."""
        if self.order.shape != order.shape:
            self.order = torch.empty_like(order, device=self.device)
            self.outlier_order = torch.empty_like(self.order)
            self._graph = None
        self.order.copy_(order)
        if outlier_order is not None:
            self.outlier_order.copy_(outlier_order)

    def forget_graph(self) -> None:
        """Capture again before the next step, because what is captured has changed (at the end of a warm-up, say)."""
        self._graph = None

    def resume(self, steps_done: int) -> None:
        self.steps_done = steps_done
        self.counter.fill_(steps_done)

    def __call__(self, batch: Batch | None = None, foreign: Batch | None = None) -> None:
        if self.captured and self._graph is None:
            self._capture()
        torch.manual_seed(splitmix64(self.seed ^ self.steps_done) >> 1)
        if self._graph is not None:
            self._graph.replay()
        else:
            self._run(batch, foreign)
        self.steps_done += 1

    def _run(self, batch: Batch | None = None, foreign: Batch | None = None) -> None:
        if batch is None:
            batch, foreign = self._gather()
        epoch = self.counter // self.data.steps_per_epoch
        copies, own = self.data.copies, len(batch.labels)
        inputs, labels = copies.with_turned(self._augmented(batch, epoch), batch.labels, batch.indices, epoch)
        inputs = copies.with_mixed(inputs, own, self.counter)
        if foreign is not None:
            inputs = torch.cat([inputs, self._augmented(foreign, epoch)])
        if self.device.type == "cuda":
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        last = len(self.rates) - 1  # which the trial steps before a capture may pass
        rate = self.rates.index_select(0, self.counter.clamp(max=last).view(1))[0]
        means: dict[str, Tensor] = {}
        hits: Tensor | None = None  # of a step that does not run the classifier
        for number, update in enumerate(self.updates):
            if update.turn.phase in (None, self.method.phase):
                self.method.turn = number
                set_rate(update.optimizer, rate * update.turn.rate)
                loss, logits = self._update(update, inputs, labels)
                means = {"loss": loss, **self.method.terms, **means}  # the loss shown is that of the first turn
                hits = (logits.argmax(1) == batch.labels).sum() if number == 0 else hits
        self.method.turn = 0
        if self.average is not None and self.recipe.average == "ema":
            self.average.update()
        self.meter.add(self.counter, means, hits)
        self.counter.add_(1)

    def _gather(self) -> tuple[Batch, Batch | None]:
        data = self.data
        assert data.images is not None
        position = (self.counter % data.steps_per_epoch).view(1)
        batch = data.images.take(self.order.index_select(0, position)[0])
        if data.outliers is None:
            return batch, None
        return batch, data.outliers.take(self.outlier_order.index_select(0, position)[0])

    def _augmented(self, batch: Batch, epoch: Tensor) -> Tensor:
        return self.data.transform.augmented(batch.images, batch.indices, epoch)

    def _update(self, update: Update, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        loss, logits = self._gradients(images, labels)
        if update.sharpness is not None:
            terms = self.method.terms
            update.sharpness.climb()
            with frozen_statistics(self.method):
                self._gradients(images, labels)
            update.sharpness.descend()
            self.method.terms = terms
        clip_gradients(update.turn.parameters, self.recipe.clip)
        update.optimizer.step()
        return loss.detach(), logits

    def _gradients(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self.method.zero_grad(set_to_none=True)
        loss, logits = self.loss_module(images, labels, self.counter)
        loss.backward()
        return loss, logits

    def _capture(self) -> None:
        """Record one step. The trial steps before it change weights, statistics, optimizer and counters, so all of
        these are restored."""
        saved = [(tensor, tensor.clone()) for tensor in self._state()]
        metered = self.meter.state_dict()
        known = {id(value) for value in self._optimizer_tensors()}
        for _ in range(TRIAL_STEPS):
            self._run()
        graph = torch.cuda.CUDAGraph()
        self.method.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream(self.device)):
            self._run()
        with torch.no_grad():
            for tensor, value in saved:
                tensor.copy_(value)
            for value in self._optimizer_tensors():
                if id(value) not in known:
                    value.zero_()
        self.meter.restore(metered)
        self._graph = graph

    def _state(self) -> list[Tensor]:
        averaged = self.average.state_dict().values() if self.average is not None else []
        model = [*self.method.parameters(), *self.method.buffers()]
        return [*model, *self._optimizer_tensors(), *averaged, self.meter.diverged_at, self.counter]

    def _optimizer_tensors(self) -> list[Tensor]:
        states = [state for update in self.updates for state in update.optimizer.state.values()]
        return [value for state in states for value in state.values() if isinstance(value, Tensor)]
