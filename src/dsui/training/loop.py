"""Train a run from its first step, or from its last checkpoint, to its weights, and never lose work.

A checkpoint is written at the end, when the process is asked to stop, and from time to time (`checkpoint.Pacer`), but
only after a look at the losses so far and at the weights, so that a run can always continue from the last one.
"""

from __future__ import annotations

import json
import math
import time
import traceback
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsui import __version__
from dsui.data.dataset import ImageSet
from dsui.data.feature_file import EMBEDDING
from dsui.errors import DivergenceError, DsuiError, Stopped
from dsui.runs.calibration import CALIBRATION, measure
from dsui.runs.checkpoint import SHORTEST_PAUSE, Pacer, check_room
from dsui.runs.config import RunConfig
from dsui.runs.folder import LOG, RunFolder
from dsui.runs.images import IMAGES, check_readable
from dsui.runs.log import read_log
from dsui.training.distributed import World
from dsui.training.interruption import Interruption
from dsui.training.memory import fitting_batch, release
from dsui.training.meter import HITS, LARGEST_LOSS, SAMPLES
from dsui.training.reporter import ACCURACY, IMAGES_PER_SECOND, WARNING, Reporter
from dsui.training.resumption import PLACE, how_to_go_on, is_lost_process, load_checkpoint, place
from dsui.training.smallest_side import check_side
from dsui.training.step import Mode, own_stream
from dsui.training.trainer import Trainer

REPORT_SECONDS = 1.0
LARGEST_WEIGHT = 1e6
"""A weight beyond this has diverged."""
ADVICE = "train again with a lower rate (--set peak_rate=...) or a clipped gradient (--set clip=1)."
STATE_COPIES = 4
"""A checkpoint is about four times the weights: themselves, two moments of the optimizer and an average."""
KEPT_STATES = 3
"""Checkpoints on the disk while the next one is written: itself, the newest and the one before that."""


class InterruptedRun(Stopped):
    """The user stopped the run; it was saved."""


def fit(
    config: RunConfig,
    images: ImageSet,
    out: Path,
    device: torch.device,
    world: World,
    reporter: Reporter,
    *,
    resume: bool = False,
    mode: Mode | None = None,
    sync_norms: bool = True,
    memory_budget: int | None = None,
    checkpoint_seconds: float = SHORTEST_PAUSE,
    outliers: ImageSet | None = None,
    held_out: ImageSet | None = None,
    stop_at: float = math.inf,
    sample_weight: Tensor | None = None,
) -> Trainer:
    """Train and return the finished trainer; its run folder holds weights, state and log, written by the leader.

    `held_out` are images to calibrate with, which are not among `images`. `sample_weight` [N] says how often an epoch
    meets each of `images` (`dsui.data.sampling`). At `stop_at`, as `time.time()` counts, the run is saved and stopped.
    The caller's random numbers on the CPU stay as they would be without this call.
    """

    def build(config: RunConfig) -> Trainer:
        return Trainer(
            config,
            images,
            device,
            world,
            mode=mode,
            sync_norms=sync_norms,
            memory_budget=memory_budget,
            outliers=outliers,
            progress=reporter.preparing,
            sample_weight=sample_weight,
        )

    check_side(config.backbone, images)
    if config.recipe.patience > 0 and held_out is None:
        raise DsuiError(
            "early stopping goes by held-out images, and none are held out; add --calibration 0.1 or leave out "
            "--set patience."
        )
    with own_stream(device), torch.random.fork_rng([]), ExitStack() as closing:
        folder = None
        if world.leader:
            make = RunFolder.resume if resume else RunFolder.create
            folder = closing.enter_context(make(out, config))
        try:
            with ExitStack() as on_error:
                if folder is not None and not resume:
                    on_error.callback(folder.discard)
                trainer = build(config)
                if folder is not None:
                    check_readable(held_out)
                    weights = sum(tensor.nbytes for tensor in trainer.method.state_dict().values())
                    check_room(out, KEPT_STATES * STATE_COPIES * weights - folder.stored_bytes)
                on_error.pop_all()
            interruption = closing.enter_context(Interruption(reporter.stopping, stop_at))
            pacer = Pacer(time.monotonic(), checkpoint_seconds)
            _Loop(trainer, folder, out, reporter, interruption, pacer, held_out).run(resume)
        except torch.cuda.OutOfMemoryError as error:
            traceback.clear_frames(error.__traceback__)  # they hold what fills the memory
        else:
            return trainer
        trainer = None  # type: ignore[assignment]
        release()

        def take_a_step(batch: int) -> None:
            smaller = replace(config, recipe=replace(config.recipe, batch=batch))
            next(build(smaller).epoch_steps(0, 0))

        fitting = None if world.size > 1 else fitting_batch(config.recipe.batch, take_a_step)
        advice = (
            f"a batch of {fitting} fits: --set batch={fitting}" if fitting else "choose a smaller one: --set batch=N"
        )
        raise DsuiError(f"a batch of {config.recipe.batch} does not fit into the memory of {device}; {advice}.")


class _Loop:
    """The epochs of a run with what happens between its steps: progress, checkpoints, and the wish to stop."""

    def __init__(
        self,
        trainer: Trainer,
        folder: RunFolder | None,
        out: Path,
        reporter: Reporter,
        interruption: Interruption,
        pacer: Pacer,
        held_out: ImageSet | None,
    ) -> None:
        self.trainer, self.folder, self.out, self.reporter = trainer, folder, out, reporter
        self.interruption, self.step, self.pacer = interruption, trainer.step, pacer
        self.held_out = None if held_out is None else trainer.as_trained(held_out)
        self.reported = time.monotonic()
        self.epoch_began = time.monotonic()
        self.steps_reported = 0
        self.last_saved = 0
        self.rows: list[dict[str, Any]] = []
        watches = folder is not None or trainer.ending.stopping is not None
        self.measurement = trainer.measurement(self.held_out) if self.held_out is not None and watches else None

    def run(self, resume: bool) -> None:
        """Train to the end. A process that loses another one says so instead of repeating its backend's message."""
        try:
            self._run(resume)
        except RuntimeError as error:
            if not is_lost_process(error, self.trainer.world):
                raise
            raise DsuiError(f"another process of this job died; {how_to_go_on(self.out)}.") from error

    def _run(self, resume: bool) -> None:
        trainer, per_epoch = self.trainer, self.trainer.steps_per_epoch
        if resume:
            load_checkpoint(trainer, self.folder, self.out, self.reporter.note)
            self.last_saved = self.step.steps_done
            if self.folder is not None:
                self.rows = read_log(self.out / LOG).rows
        first, start = divmod(self.step.steps_done, per_epoch)
        self.steps_reported = self.step.steps_done
        for epoch in range(first, trainer.recipe.epochs):
            if trainer.ending.is_over(epoch - 1):
                break
            self.epoch_began = time.monotonic()
            for position, _ in enumerate(trainer.epoch_steps(epoch, start), start=start):
                if position + 1 == per_epoch:
                    self._end_epoch(epoch)
                self._between_steps()
            start = 0
        self._save()
        trainer.finish()
        if (sentence := trainer.ending.sentence) is not None:
            self.reporter.note(sentence)
        if self.folder is not None:
            calibration = measure(
                trainer.method,
                trainer.transform,
                trainer.source,
                len(trainer.balance.labels),
                self.held_out,
                trainer.recipe.batch,
                trainer.device,
            )
            metadata = {"version": __version__, "classes": json.dumps(trainer.classes), IMAGES: trainer.images}
            if trainer.embedding is not None:
                metadata[EMBEDDING] = trainer.embedding
            self.folder.save_weights(trainer.method.state_dict(), metadata | {CALIBRATION: calibration.to_text()})
            self.folder.finish()
        trainer.world.barrier()  # a process that leaves while the leader still works may break the others' connections

    def _between_steps(self) -> None:
        now = time.monotonic()
        if self._stop_requested():
            self._save()
            raise InterruptedRun(
                f"stopped after step {self.step.steps_done} of {self.trainer.total_steps}; "
                f"go on with the same command and --resume (run folder {self.out})."
            )
        if now - self.reported >= REPORT_SECONDS:
            self._check()
            images = (self.step.steps_done - self.steps_reported) * self.trainer.recipe.batch
            figures = {**self._figures(), IMAGES_PER_SECOND: images / (now - self.reported)}
            self.reporter.steps(self.step.steps_done, self.trainer.total_steps, figures)
            self.reported, self.steps_reported = now, self.step.steps_done
        if self.folder is not None and self.pacer.due(now):
            self._save()

    def _stop_requested(self) -> bool:
        """In this process or in any other."""
        if self.trainer.world.size == 1:
            return self.interruption.requested
        requests = torch.tensor(float(self.interruption.requested), device=self.trainer.device)
        torch.distributed.all_reduce(requests)
        return bool(requests > 0)

    def _end_epoch(self, epoch: int) -> None:
        self._check()
        self.trainer.end_epoch(epoch)
        if self.trainer.world.size > 1:
            torch.distributed.all_reduce(self.step.meter.totals)
        figures = self._figures()
        if ACCURACY in figures:
            figures |= self.trainer.held_out_figures(epoch, self.measurement)
        seconds = time.monotonic() - self.epoch_began
        row: dict[str, object] = {"epoch": epoch, "step": self.step.steps_done, **figures, "seconds": round(seconds, 3)}
        self.rows.append(row)
        row |= self._warning(epoch)
        if self.folder is not None:
            self.folder.log({**row, **self.trainer.method.log_row()})
        self.reporter.epoch(row)
        self.step.meter.reset()

    def _warning(self, epoch: int) -> dict[str, str]:
        """What the method says of a training that goes wrong, unless the log has it already."""
        said = any(WARNING in row for row in self.rows)
        sentence = None if said else self.trainer.method.warning(self.rows)
        return {} if sentence is None else {WARNING: f"In epoch {epoch + 1} {sentence}"}

    def _figures(self) -> dict[str, float]:
        """Means over the epoch so far, over this process's samples; at its end over those of all processes. Steps that
        do not run the classifier have no accuracy, and an epoch without a step has nothing."""
        sums = self.step.meter.sums()
        samples = sums.pop(SAMPLES, 0.0)
        if samples == 0:
            return {}
        figures = {name: value / samples for name, value in sums.items()}
        if HITS in figures:
            figures[ACCURACY] = figures.pop(HITS)
        return figures

    def _check(self) -> None:
        step = int(self.step.meter.diverged_at.item())
        if step >= 0:
            epoch = step // self.trainer.steps_per_epoch
            raise self._diverged(
                f"the loss of step {step + 1} (epoch {epoch + 1}) is not a number or beyond {LARGEST_LOSS:g}"
            )

    def _check_weights(self) -> None:
        """The last loss was computed before the last update, which may have ruined the weights."""
        largest = torch.stack([parameter.detach().abs().max() for parameter in self.trainer.method.parameters()]).max()
        if not bool(largest < LARGEST_WEIGHT):  # also where it is nan
            raise self._diverged(
                f"a weight after step {self.step.steps_done} is not a number or beyond {LARGEST_WEIGHT:g}"
            )

    def _diverged(self, what: str) -> DivergenceError:
        """What the method has said of it is better advice than a lower rate."""
        last = f"the last good checkpoint is of step {self.last_saved}"
        kept = last if self.last_saved else "there is no checkpoint yet"
        advice = next((f"{row[WARNING]}" for row in self.rows if WARNING in row), ADVICE)
        return DivergenceError(f"{what}; {kept}; {advice}")

    def _save(self) -> None:
        self._check()
        if self.folder is None:
            return
        self._check_weights()
        began = time.monotonic()
        self.folder.save_state({**self.trainer.state(), PLACE: place(self.trainer.world, self.trainer.device)})
        now = time.monotonic()
        self.pacer.saved(now - began, now)
        self.last_saved = self.step.steps_done
