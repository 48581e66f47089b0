"""One training step: gather, augment, and for each of the method's turns forward, loss, backward, clip and update.

It is one function of device tensors: the step counter, the epoch's order and the table of learning rates lie on the
device, and dropout's generator is seeded from (seed, step, process) before every step. So it can run as it is or whole
as one CUDA graph, either with its forward and backward pass compiled, and a resumed run goes on as if nothing had
happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
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
from dsui.training.distributed import World
from dsui.training.meter import Meter
from dsui.training.optimizer import clip_gradients, set_rate
from dsui.training.sharpness import SharpnessAware, frozen_statistics

Mode = Literal["eager", "compiled", "graph"]
TRIAL_STEPS = 3


def own_stream(device: torch.device) -> AbstractContextManager[object]:
    """Build and run a trainer within this: a graph cannot be captured where gradients belong to the default stream."""
    return torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext()


class LossModule(nn.Module):
    """Images and labels to loss and logits, as one module that DDP and torch.compile can wrap.

    Outliers, where a method learns from them, are the images beyond the labels.
    """

    def __init__(self, method: Method, autocast: AbstractContextManager[object]) -> None:
        super().__init__()
        self.method, self.autocast = method, autocast

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        with self.autocast:
            output = self.method(images)
        loss = self.method.loss(output, labels)
        return loss, self.method.logits(output).detach()[: len(labels)] if self.method.turn == 0 else loss.detach()


class Update:
    """What one turn of a method moves: its optimizer, and the climb before it where the recipe asks for one."""

    def __init__(self, turn: Turn, optimizer: Optimizer, recipe: Recipe) -> None:
        self.turn, self.optimizer = turn, optimizer
        self.sharpness = SharpnessAware(turn.parameters, recipe.sam) if recipe.sam > 0 else None


class TrainingStep:
    """Call it once per step; `steps_done` counts. Batches are given where images are streamed, else gathered on the
    device; with `outliers` there are two, the second of foreign images."""

    def __init__(
        self,
        method: Method,
        loss_module: nn.Module,
        optimizers: Sequence[Optimizer],
        transform: Transform,
        rates: Tensor,
        recipe: Recipe,
        seed: int,
        steps_per_epoch: int,
        source: ResidentLoader | None,
        average: WeightAverage | None,
        device: torch.device,
        compiled: bool,
        captured: bool,
        world: World,
        outliers: ResidentLoader | None = None,
    ) -> None:
        self.method, self.transform, self.recipe, self.outliers = method, transform, recipe, outliers
        self.updates = [Update(*pair, recipe) for pair in zip(method.turns(), optimizers, strict=True)]
        if compiled:
            ready_to_compile()
        self.loss_module = torch.compile(loss_module) if compiled else loss_module
        self.source, self.average, self.device, self.captured = source, average, device, captured
        self.steps_per_epoch, self.seed = steps_per_epoch, splitmix64(splitmix64(seed) ^ world.rank)
        self.rates = rates.to(device)
        self.meter = Meter(device, recipe.batch // world.size)
        self.counter = torch.zeros((), dtype=torch.int64, device=device)
        self.order = torch.zeros(0, dtype=torch.int64, device=device)
        self.outlier_order = self.order
        self.steps_done = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def begin_epoch(self, order: Tensor, outlier_order: Tensor | None = None) -> None:
        """`order` [steps, B]: the epoch's indices, this process's part of each batch; the outliers' likewise."""
        if self.order.shape != order.shape:
            self.order = torch.empty_like(order, device=self.device)
            self.outlier_order = torch.empty_like(self.order)
            self._graph = None
        self.order.copy_(order)
        if outlier_order is not None:
            self.outlier_order.copy_(outlier_order)

    def forget_graph(self) -> None:
        """Capture anew before the next step, because what is captured has changed (the end of a warm-up, say)."""
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
            batch, foreign = self._gathered()
        inputs = self._inputs(batch)
        if foreign is not None:
            inputs = torch.cat([inputs, self._inputs(foreign)])
        last = len(self.rates) - 1  # which the trial steps before a capture may pass
        rate = self.rates.index_select(0, self.counter.clamp(max=last).view(1))[0]
        means: dict[str, Tensor] = {}
        hits = torch.zeros((), dtype=torch.int64, device=self.device)
        for number, update in enumerate(self.updates):
            if update.turn.phase in (None, self.method.phase):
                self.method.turn = number
                set_rate(update.optimizer, rate * update.turn.rate)
                loss, logits = self._update(update, inputs, batch.labels)
                means = {"loss": loss, **self.method.terms, **means}  # the loss shown is that of the first turn
                hits = (logits.argmax(1) == batch.labels).sum() if number == 0 else hits
        self.method.turn = 0
        if self.average is not None and self.recipe.average == "ema":
            self.average.update()
        self.meter.add(self.counter, means, hits)
        self.counter.add_(1)

    def _gathered(self) -> tuple[Batch, Batch | None]:
        assert self.source is not None
        position = (self.counter % self.steps_per_epoch).view(1)
        batch = self.source.take(self.order.index_select(0, position)[0])
        if self.outliers is None:
            return batch, None
        return batch, self.outliers.take(self.outlier_order.index_select(0, position)[0])

    def _inputs(self, batch: Batch) -> Tensor:
        images = self.transform.augmented(batch.images, batch.indices, self.counter // self.steps_per_epoch)
        return images.contiguous(memory_format=torch.channels_last) if self.device.type == "cuda" else images

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
        loss, logits = self.loss_module(images, labels)
        loss.backward()
        return loss, logits

    def _capture(self) -> None:
        """Record one step. The trial steps that must come before change weights, statistics, optimizer and counters,
        so all of these are put back."""
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
