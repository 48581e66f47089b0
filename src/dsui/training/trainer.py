"""A run in memory: network, optimizer, data and step, in one state that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dsui.data.augment import Transform, splitmix64
from dsui.data.dataset import ImageSet
from dsui.data.features import features_of, transform_for
from dsui.data.foreign import as_foreign
from dsui.data.pipeline import Batch, ResidentLoader, StreamedLoader, epoch_batches, open_loader
from dsui.errors import DsuiError, RunError
from dsui.methods.registry import build
from dsui.progress import Progress, silent
from dsui.runs.config import RunConfig
from dsui.runs.images import digest
from dsui.runs.state_schema import check_state
from dsui.training.balance import Balance
from dsui.training.batch_norm import synchronise
from dsui.training.copies import Copies
from dsui.training.distributed import World
from dsui.training.ending import Ending
from dsui.training.frozen import features_once
from dsui.training.held_out import HeldOutMeasurement
from dsui.training.optimizer import make_optimizer
from dsui.training.schedule import rates
from dsui.training.step import DeviceData, Execution, LossModule, Mode, Optimization, TrainingStep

NO_PHASE = -1


class Trainer:
    """Everything a run consists of. `mode` None chooses a CUDA graph where it is possible and eager steps elsewhere;
    "compiled" also compiles forward and backward pass, which takes half a minute and pays off in longer runs."""

    def __init__(
        self,
        config: RunConfig,
        images: ImageSet,
        device: torch.device,
        world: World,
        *,
        mode: Mode | None = None,
        sync_norms: bool = True,
        memory_budget: int | None = None,
        outliers: ImageSet | None = None,
        progress: Progress = silent,
        sample_weight: Tensor | None = None,
    ) -> None:
        """`sample_weight` [N] says how often an epoch meets each image (`dsui.data.sampling`); None: once."""
        recipe = config.recipe
        self.config, self.recipe, self.device, self.world = config, recipe, device, world
        if len(images.classes) < 2:
            raise DsuiError(f"{images.name} has one class, {images.classes[0]}; a classifier needs two or more.")
        self.balance = Balance(recipe, images, sample_weight)
        self.samples, self.classes = self.balance.epoch_samples, images.classes
        self.steps_per_epoch = self.samples // recipe.batch
        if self.steps_per_epoch == 0:
            raise DsuiError(
                f"{images.name} has {self.samples} training images, fewer than one batch of {recipe.batch}; "
                f"choose --set batch={max(2, self.samples // 2)} or less."
            )
        if len(recipe.mean) not in {1, images.shape[0]}:
            raise DsuiError(
                f"mean and std have {len(recipe.mean)} numbers and the images have {images.shape[0]} channels; "
                "give one number, or one for each channel."
            )
        self.images = " ".join(digest(each) for each in (images, outliers) if each is not None)
        features = features_of(images)
        self.embedding = None if features is None else features.file.embedding
        torch.manual_seed(config.seed)
        channels, classes = images.shape[0], len(images.classes)
        self.method = build(
            config.method, config.backbone, channels, classes, recipe, config.options, outliers is not None
        ).to(device)
        self.balance.prepare(self.method, config.method, device)
        if device.type == "cuda":
            self.method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if world.size > 1 and sync_norms:
            synchronise(self.method, device)
        for_images = Transform(
            recipe.padding,
            recipe.flip,
            recipe.mean,
            recipe.std,
            config.seed,
            smallest_crop=recipe.smallest_crop,
            jitter=recipe.jitter,
        )
        self.as_trained = features_once(self.method, for_images.to(device), device, progress)
        trained = self.as_trained(images)
        self.source = open_loader(trained, device, memory_budget)
        self.transform = transform_for(trained, for_images).to(device)
        self.copies = Copies(self.method, recipe, classes, config.seed, self.total_steps, device, outliers is not None)
        foreign = None if outliers is None else self.as_trained(as_foreign(outliers, images))
        self.outliers = None if foreign is None else open_loader(foreign, device, memory_budget)
        self.outlier_samples = 0 if outliers is None else len(outliers.labels)
        self.optimizers = [make_optimizer(self.method, turn, recipe, device) for turn in self.method.turns()]
        self.ending = Ending(self.method, config.method, recipe, config.seed, self.steps_per_epoch)
        self.average = self.ending.average
        self.entered = NO_PHASE
        self.step = TrainingStep(
            self.method,
            self._loss_module(),
            DeviceData(
                _if_resident(self.source),
                _if_resident(self.outliers),
                self.transform,
                self.copies,
                self.steps_per_epoch,
            ),
            Optimization(
                recipe,
                self.optimizers,
                rates(recipe, self.steps_per_epoch, self.method.schedule_starts()),
                self.average,
            ),
            Execution(device, world, config.seed, compiled=mode == "compiled", captured=self._captures(mode)),
        )

    @property
    def total_steps(self) -> int:
        return self.recipe.epochs * self.steps_per_epoch

    def epoch_steps(self, epoch: int, start: int) -> Iterator[None]:
        """Take the steps of an epoch from `start` on, one for each item of the iterator."""
        self._enter(epoch)
        order = self.order(epoch)
        foreign_order = None if self.outliers is None else self.outlier_order(epoch)
        self.step.begin_epoch(order, foreign_order)
        if self._resident:
            for _ in range(start, self.steps_per_epoch):
                self.step()
                yield
        else:
            foreign: Iterable[Batch | None] = repeat(None)
            if self.outliers is not None and foreign_order is not None:
                foreign = self.outliers.stream(foreign_order[start:])
            for batch, outliers in zip(self.source.stream(order[start:]), foreign, strict=False):
                self.step(batch, outliers)
                yield

    def end_epoch(self, epoch: int) -> None:
        self.ending.end_epoch(epoch)

    def measurement(self, held_out: ImageSet) -> HeldOutMeasurement:
        return HeldOutMeasurement(self.method, self.transform, held_out, samples=self.samples, recipe=self.recipe)

    def held_out_figures(self, epoch: int, measurement: HeldOutMeasurement | None) -> dict[str, float]:
        """For the log, after the last step of an epoch; see `dsui.training.ending`."""
        inputs = partial(self._inputs, self.recipe.epochs)
        return self.ending.held_out_figures(epoch, measurement, inputs, self.device, self.world)

    def order(self, epoch: int) -> Tensor:
        """[steps, B / processes] indices of this process."""
        return torch.stack(list(self._batches(epoch, self.world.rank, self.world.size)))

    def _batches(self, epoch: int, rank: int = 0, world: int = 1) -> Iterator[Tensor]:
        seed, places = self.config.seed, self.balance.places(self.config.seed, epoch)
        return epoch_batches(self.samples, self.recipe.batch, seed, epoch, rank=rank, world=world, places=places)

    def outlier_order(self, epoch: int) -> Tensor:
        """[steps, B / processes] outliers of this process."""
        return self._all_outliers(epoch).chunk(self.world.size, dim=1)[self.world.rank]

    def _all_outliers(self, epoch: int) -> Tensor:
        """[steps, B] outliers of all processes, drawn with replacement: a set may be small or large."""
        generator = torch.Generator().manual_seed(splitmix64(splitmix64(self.config.seed) ^ ~epoch) >> 1)
        return torch.randint(self.outlier_samples, (self.steps_per_epoch, self.recipe.batch), generator=generator)

    @torch.no_grad()
    def finish(self) -> None:
        """Put averaged weights in place, and estimate again what depends on them: batch-norm statistics, and what the
        method estimates from its final weights."""
        self.ending.put_weights(partial(self._inputs, self.recipe.epochs))
        self.method.eval()
        self.balance.complete(self.method)
        torch.manual_seed(splitmix64(self.config.seed) >> 1)  # methods that draw do so likewise
        self.method.complete(self._labelled_inputs(self.recipe.epochs))

    def state(self) -> dict[str, Any]:
        return {
            "model": self.method.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "average": None if self.average is None else self.average.state_dict(),
            "meter": self.step.meter.state_dict(),
            "steps": self.step.steps_done,
            "phase": self.entered,
            "images": self.images,
            "best": None if self.ending.stopping is None else self.ending.stopping.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        check_state(state)
        if state.get("images", self.images) != self.images:  # older checkpoints do not have them
            raise DsuiError(
                f"the images of {self.config.data} are not those this run was begun with; restore them, or train "
                "again with another --out."
            )
        if (steps := state["steps"]) > self.total_steps:
            raise RunError(
                f"the checkpoint is of step {steps} and this run has {self.total_steps} steps; bring back its own, or "
                "train again with another --out."
            )
        try:
            self.method.load_state_dict(state["model"])
        except (RuntimeError, ValueError) as error:
            raise RunError(
                "the checkpoint holds another network than this version of dsui builds; train again with another --out."
            ) from error
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            rate = [group["lr"] for group in optimizer.param_groups]
            optimizer.load_state_dict(saved)
            for group, own in zip(optimizer.param_groups, rate, strict=True):
                group["lr"] = own  # on its device; every step writes the scheduled value into it
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        if self.ending.stopping is not None and (best := state.get("best")) is not None:
            self.ending.stopping.load(best)
        self.step.meter.load_state_dict(state["meter"])
        self.step.resume(steps)
        self.entered = state["phase"]

    def _enter(self, epoch: int) -> None:
        """Begin the phase the epoch belongs to, unless the run is in it already."""
        self.method.train()
        self.method.phase = self.method.phase_at(epoch)
        if self.method.phase != self.entered:
            self.method.begin_phase(self._labelled_inputs(epoch))
            if self.average is not None:
                self.average.restart()  # a phase may begin with new weights
            self.entered = self.method.phase
            self.step.forget_graph()

    @property
    def _resident(self) -> bool:
        return not any(isinstance(source, StreamedLoader) for source in (self.source, self.outliers))

    def _labelled_inputs(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every training batch of an epoch, augmented and with turned copies behind it, with its labels. Each process
        gets all of them, so that estimates from them are the same everywhere."""
        for batch in self.source.stream(self._batches(epoch)):
            images = self.transform.augmented(batch.images, batch.indices, epoch)
            yield self.copies.with_turned(images, batch.labels, batch.indices, epoch)

    def _inputs(self, epoch: int) -> Iterator[Tensor]:
        """Inputs of every step of an epoch as the network is trained on them, with copies and outliers after the
        batch's own."""
        first, batch = epoch * self.steps_per_epoch, self.recipe.batch
        own = (
            self.copies.with_mixed(images, batch, first + step)
            for step, (images, _) in enumerate(self._labelled_inputs(epoch))
        )
        if self.outliers is None:
            yield from own
            return
        foreign = self.outliers.stream(self._all_outliers(epoch))
        for images, outliers in zip(own, foreign, strict=False):
            yield torch.cat([images, self.transform.augmented(outliers.images, outliers.indices, epoch)])

    def _loss_module(self) -> nn.Module:
        lowered = self.device.type == "cuda" and self.recipe.bfloat16
        autocast = torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False) if lowered else nullcontext()
        module = LossModule(self.method, self.copies, autocast)
        last = self.recipe.epochs - 1
        if self.world.size == 1:
            return module
        return DistributedDataParallel(
            module,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            find_unused_parameters=len(self.optimizers) > 1
            or self.method.partial_gradients
            or self.method.phase_at(0) != self.method.phase_at(last),
        )

    def _captures(self, mode: Mode | None) -> bool:
        """Whether steps are CUDA graphs: wherever they can be, unless the user wants eager steps."""
        in_one_place = self.world.size == 1 and self._resident
        capturable = self.device.type == "cuda" and in_one_place and self.method.capturable
        if mode == "graph" and not capturable:
            raise DsuiError(
                "a CUDA graph needs one process on a GPU, a data set that fits into its memory and an objective that "
                "does not look at its own value; choose --mode eager or compiled."
            )
        return capturable and mode != "eager"


def _if_resident(source: ResidentLoader | StreamedLoader | None) -> ResidentLoader | None:
    return source if isinstance(source, ResidentLoader) else None
