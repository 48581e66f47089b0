"""`dsui train`: one run from data to weights."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.backbones.spec import is_spec
from dsui.cli import names, train_backbone, train_balance, train_checks, train_choices, train_summary
from dsui.cli.arguments import (
    MODES,
    Device,
    Root,
    SkipBad,
    StepMode,
    Weights,
    check_name,
    check_outside_images,
    select_device,
)
from dsui.cli.errors import FAILED, UsageError, as_usage_errors, print_error
from dsui.cli.json_output import print_json
from dsui.cli.names import completion
from dsui.cli.plain_arguments import Json, Quiet, check_share, parse_path
from dsui.data.registry import FOLDER, OWN

if TYPE_CHECKING:
    from dsui.data.dataset import ImageSet
    from dsui.data.registry import FolderOptions


def train(
    data: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A data set of `dsui data list`, folder:PATH for your own images, or features:FILE for features of "
            "images (.safetensors, .npz, .parquet; see `dsui embed`).",
            autocompletion=completion(names.data),
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", parser=parse_path, help="Where to keep the run.")],
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME", help=f"One of {', '.join(names.methods())}.", autocompletion=completion(names.methods)
        ),
    ] = "dsui",
    backbone: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"One of {', '.join(names.backbones())}; or pretrained: timm:NAME, torchvision:NAME, hf:NAME, or "
            "package.module:function of your own.  [default: resnet18; for folder:PATH without a GPU small]",
            autocompletion=completion(names.backbones),
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Training settings: {', '.join(names.recipes())}, or a YAML file.  [default: paper; photos for "
            "folder:PATH; features for features:FILE and with --freeze]",
            autocompletion=completion(names.recipes),
        ),
    ] = None,
    weights: Weights = None,
    freeze: Annotated[
        bool, typer.Option("--freeze", help="Leave a pretrained backbone as it is; its features are computed once.")
    ] = False,
    freeze_until: Annotated[
        str | None,
        typer.Option(metavar="LAYER", help="Leave the layers of a pretrained backbone before this one as they are."),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            max=2**32 - 1,
            metavar="NUMBER",
            help="Seed of the initial weights, the order of the images, augmentation and dropout.",
        ),
    ] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting of the recipe or the method, as in epochs=3; may be repeated.",
            autocompletion=completion(names.settings),
        ),
    ] = None,
    known_classes: Annotated[
        str | None,
        typer.Option(
            "--known",
            metavar="CLASSES",
            help="Train on some of the classes only: neal-0 .. neal-4, arpl-0 .. arpl-4, or numbers as in 0,2,5.",
        ),
    ] = None,
    outliers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Data set of foreign training images, for methods that learn from them.",
            autocompletion=completion(names.data),
        ),
    ] = None,
    calibration: Annotated[
        float | None,
        typer.Option(
            callback=check_share,
            metavar="SHARE",
            help="Share of the training images to hold out: `dsui predict` sets its thresholds on them, and a model "
            "can be selected on them.  [default: 0.1 for folder:PATH, else 0]",
        ),
    ] = None,
    balance: train_balance.BalanceOption = None,
    patience: train_balance.PatienceOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    root: Root = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="PIXELS",
            help="Resize the images to this side; published ones can be made smaller.  [default: as most files of "
            "folder:PATH, at most 224, or 64 without a GPU]",
        ),
    ] = None,
    square: Annotated[
        str | None,
        typer.Option(
            "--fit",
            metavar="NAME",
            help="For folder:PATH, how an image becomes a square: crop its centre, or letterbox, all of it between "
            "grey bars.  [default: crop]",
        ),
    ] = None,
    channels: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="For folder:PATH: 1 for grey, 3 for colour.  [default: 3]"),
    ] = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    mode: StepMode = "auto",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Give bit-identical weights every time; slower.")
    ] = False,
    sync_norms: Annotated[
        bool, typer.Option(help="With several processes: batch norm over the images of all of them.")
    ] = True,
    checkpoint_seconds: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Least time between two checkpoints.  [default: 60]")
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write the log for TensorBoard.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a method on a data set.

    You can stop it at any moment and continue with --resume.

    Example: dsui train --data cifar10 --recipe paper --out runs/cifar10-0
    """
    check_name("method", method, names.methods())
    begun = train_choices.begun_run(data, out, resume)
    backbone, recipe = train_checks.backbone_and_recipe(data, backbone, recipe, freeze, device, begun)
    train_backbone.check(backbone, data, weights, channels, freeze, freeze_until, square)
    check_name("mode", mode, MODES)
    if not recipe.lower().endswith((".yaml", ".yml")):
        check_name("recipe", recipe, (*names.recipes(), "FILE.yaml"))
    train_checks.check_data(data, outliers, size, folder_options=channels is not None or skip_bad)
    data = train_checks.without_slash(data)
    for name in filter(None, (data, outliers)):
        check_outside_images("--out", out, name)
    overrides = {
        **dict(map(_parse_setting, settings or [])),
        **train_backbone.frozen(freeze, freeze_until),
        **train_balance.settings(balance, patience),
    }

    import torch

    from dsui.cli.train_progress import TensorBoardReporter, TrainingProgress
    from dsui.runs.checkpoint import SHORTEST_PAUSE
    from dsui.runs.config import RunConfig
    from dsui.runs.folder import CONFIG
    from dsui.runs.images import held_out_images, training_images, usual_share
    from dsui.runs.recipe_file import load_recipe, method_options
    from dsui.runs.start import started
    from dsui.training.distributed import connect, joined
    from dsui.training.heartbeat import Heartbeat
    from dsui.training.loop import fit

    device_type = select_device(device).type
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = not deterministic
    choice = train_choices.choose(data, backbone, recipe, size, device_type, begun)
    with as_usage_errors():
        recipe_overrides, options = method_options(method, {**choice.settings, **overrides})
        loaded_recipe = load_recipe(recipe, data, recipe_overrides, pretrained=is_spec(backbone))
    resume = resume or train_choices.is_restarted(out / CONFIG)
    with (
        started(
            backbone,
            weights,
            choice.size,
            train_backbone.chosen_fit(data, square, begun),
            train_choices.classes(data) if is_spec(backbone) else None,
        ) as start,
        joined(device_type) as world,
        Heartbeat(world, lambda: connect(world), print_error, partial(_end_job, out)),
    ):
        loaded_recipe = start.recipe(loaded_recipe, data)
        folder_options = start.folder_options(choice.size, channels, skip_bad)
        whole = _load_images(data, root, choice.size, folder_options)
        has_test = train_checks.has_test_images(data)
        foreign = None if outliers is None else _load_images(outliers, root, None, folder_options)
        config = RunConfig(
            data=data,
            backbone=backbone,
            method=method,
            seed=seed,
            size=whole.shape[1],
            channels=whole.shape[0],
            recipe=loaded_recipe,
            options=options,
            outliers=outliers,
            known=known_classes,
            held_out=usual_share(data) if calibration is None else calibration,
            skip_bad=skip_bad,
            preparation=start.facts,
        )
        images = training_images(config, whole)
        if world.leader and not quiet:
            train_checks.print_notes(config, whole, images, choice.notes, has_test=has_test, device=device_type)
        held_out = None if config.held_out == 0 else held_out_images(config, whole)
        with TrainingProgress(quiet or not world.leader, loaded_recipe.epochs) as progress:
            fit(
                config,
                images,
                out,
                torch.device(device_type, world.local_rank) if device_type == "cuda" else torch.device("cpu"),
                world,
                TensorBoardReporter(progress, out) if tensorboard and world.leader else progress,
                resume=resume,
                mode=MODES[mode],
                sync_norms=sync_norms,
                checkpoint_seconds=SHORTEST_PAUSE if checkpoint_seconds is None else checkpoint_seconds,
                outliers=foreign,
                held_out=held_out,
            )
        if world.leader and as_json:
            print_json(train_summary.facts(config, out))
        elif world.leader and not quiet:
            train_summary.print_sentences(out, has_test)


def _end_job(out: Path, who: str) -> None:
    """End this process, which waits in vain for another one; nothing else would end a collective operation."""
    from dsui.training.resumption import how_to_go_on

    print_error(f"{who}; {how_to_go_on(out)}.")
    os._exit(FAILED)


def _load_images(data: str, root: Path | None, size: int | None, folder_options: FolderOptions) -> ImageSet:
    """The training images; `size` is for a published set, which is by default as published."""
    from dsui.data.registry import load

    if data.startswith(FOLDER):
        return load(data, "train", root, **folder_options)
    published_size = None if data.startswith(OWN) else size
    return load(data, "train", root) if published_size is None else load(data, "train", root, size=published_size)


def _parse_setting(setting: str) -> tuple[str, str]:
    key, sign, value = setting.partition("=")
    if not sign:
        raise UsageError(f"--set {setting} has no value; write --set KEY=VALUE, as in --set epochs=3.")
    return key.strip(), value.strip()
