"""`dsui train`: one run from data to weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dsui.cli.device import device_type
from dsui.data.dataset import ImageSet
from dsui.data.registry import FOLDER, load
from dsui.errors import DsuiError
from dsui.methods.registry import names
from dsui.training.checkpoint import SHORTEST_PAUSE
from dsui.training.config import RunConfig
from dsui.training.distributed import joined
from dsui.training.images import held_out_images, training_images
from dsui.training.loop import IMAGES_PER_SECOND, Reporter, fit
from dsui.training.recipe_file import load_recipe, method_options
from dsui.training.run_folder import CONFIG
from dsui.training.step import Mode


def train(
    data: Annotated[str, typer.Option(help="A name of `dsui data list`, or folder:PATH.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    backbone: Annotated[str, typer.Option(help="small, resnet18 or vgg16.")] = "resnet18",
    method: Annotated[str, typer.Option(help=f"One of {', '.join(names())}.")] = "dsui",
    recipe: Annotated[str, typer.Option(help="paper, released, modern, demo, or a YAML file.")] = "paper",
    seed: Annotated[int, typer.Option(help="Of weights, order, augmentation and dropout.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change one setting of recipe or method: --set epochs=3")
    ] = None,
    outliers: Annotated[
        str | None, typer.Option(help="Foreign training images, for methods that learn from them.")
    ] = None,
    known: Annotated[
        str | None, typer.Option(help="Train on some classes only: neal-0 .. neal-4, arpl-0 .. arpl-4, or 0,2,5.")
    ] = None,
    calibration: Annotated[
        float | None,
        typer.Option(
            help="Share of the training images to set aside, for thresholds of `dsui predict` or to select by.",
            show_default="0.1 for folder:PATH, else 0",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    root: Annotated[Path | None, typer.Option(help="Folder that holds the data sets.")] = None,
    size: Annotated[int, typer.Option(help="folder:PATH: side of the images in pixels.")] = 32,
    channels: Annotated[int, typer.Option(help="folder:PATH: 1 for grey, 3 for colour.")] = 3,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="folder:PATH: leave out unreadable files.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    mode: Annotated[str, typer.Option(help="How steps run: auto, eager, compiled or graph.")] = "auto",
    deterministic: Annotated[bool, typer.Option("--deterministic", help="The same bits on every run; slower.")] = False,
    sync_norms: Annotated[bool, typer.Option(help="Several processes: batch norm over all of them.")] = True,
    checkpoint_seconds: Annotated[float, typer.Option(help="Shortest time between checkpoints.")] = SHORTEST_PAUSE,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write the log for TensorBoard.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Train a method on a data set; stopped at any moment, it goes on with --resume.

    Example: dsui train --data cifar10 --backbone resnet18 --recipe paper --seed 0 --out runs/cifar10-0
    """
    chosen_mode = _mode(mode)
    kind = device_type(device)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = not deterministic
    overrides, options = method_options(method, dict(_assignment(setting) for setting in settings or []))
    resume = resume or _restarted(out)
    with joined(kind) as world:
        whole = _images(data, root, size, channels, skip_bad)
        foreign = None if outliers is None else _images(outliers, root, size, channels, skip_bad)
        channels, size = whole.shape[:2]
        chosen = load_recipe(recipe, data, overrides)
        share = calibration if calibration is not None else 0.1 if data.startswith(FOLDER) else 0.0
        config = RunConfig(data, backbone, method, seed, size, channels, chosen, options, outliers, known, share)
        images = training_images(config, whole)
        held_out = None if share == 0 else held_out_images(config, whole)
        place = torch.device(kind, world.local_rank) if kind == "cuda" else torch.device("cpu")
        with _Screen(quiet or not world.leader, chosen.epochs) as screen:
            reporter = _WithTensorBoard(screen, out) if tensorboard and world.leader else screen
            fit(
                config,
                images,
                out,
                place,
                world,
                reporter,
                resume,
                chosen_mode,
                sync_norms,
                checkpoint_seconds=checkpoint_seconds,
                outliers=foreign,
                held_out=held_out,
            )
        if world.leader and not quiet:
            typer.echo(f"Trained; the weights are in {out / 'model.safetensors'}.")


class _Screen:
    """A live bar on a terminal, one plain line per epoch elsewhere."""

    def __init__(self, silent: bool, epochs: int) -> None:
        self.console = Console(stderr=True, quiet=silent, highlight=False)
        self.live = self.console.is_terminal and not silent
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=self.console, transient=True, disable=not self.live)
        self.task = self.bar.add_task("starting", total=None)
        self.epochs = epochs

    def __enter__(self) -> _Screen:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None:
        epoch = done * self.epochs // total
        words = f"epoch {min(epoch + 1, self.epochs)}/{self.epochs}  {_words(figures)}"
        self.bar.update(self.task, completed=done, total=total, description=words)

    def epoch(self, row: dict[str, object]) -> None:
        figures = {name: value for name, value in row.items() if isinstance(value, float) and name != "seconds"}
        if not self.live:
            self.console.print(f"epoch {row['epoch']}: {_words(figures)}, {row['seconds']} s", soft_wrap=True)


class _WithTensorBoard:
    """Passes a run's progress on, and each epoch's figures to TensorBoard as well."""

    def __init__(self, screen: Reporter, out: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise DsuiError("--tensorboard needs the package tensorboard; install it or leave the flag out.") from error
        self.screen, self.writer = screen, SummaryWriter(out / "tensorboard")

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None:
        self.screen.steps(done, total, figures)

    def epoch(self, row: dict[str, object]) -> None:
        self.screen.epoch(row)
        for name, value in row.items():
            if isinstance(value, float):
                self.writer.add_scalar(name, value, row["step"])
        self.writer.flush()


def _restarted(out: Path) -> bool:
    """torchrun started the job again after a process died: the same command then means to go on."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0 and (out / CONFIG).exists()


def _words(figures: dict[str, float]) -> str:
    rate = figures.get(IMAGES_PER_SECOND)
    shown = [f"{name} {value:.4g}" for name, value in figures.items() if name != IMAGES_PER_SECOND]
    return ", ".join([*shown, *([] if rate is None else [f"{rate:,.0f} images/s"])])


def _images(data: str, root: Path | None, size: int, channels: int, skip_bad: bool) -> ImageSet:
    if data.startswith(FOLDER):
        return load(data, "train", root, size=size, channels=channels, skip_bad=skip_bad)
    return load(data, "train", root)


def _assignment(setting: str) -> tuple[str, str]:
    key, sign, value = setting.partition("=")
    if not sign:
        raise DsuiError(f"--set {setting} is no assignment; write --set KEY=VALUE, as in --set epochs=3.")
    return key.strip(), value.strip()


def _mode(name: str) -> Mode | None:
    modes: dict[str, Mode | None] = {"auto": None, "eager": "eager", "compiled": "compiled", "graph": "graph"}
    if name not in modes:
        raise DsuiError(f"--mode {name} is unknown; choose from {', '.join(modes)}.")
    return modes[name]
