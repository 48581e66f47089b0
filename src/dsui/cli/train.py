"""`dsui train`: one run from data to weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import before_training, documents, names
from dsui.cli.choice import FOLDER, WrongUsage, data_set, known, typed
from dsui.cli.names import completion
from dsui.cli.options import MODES, Device, Json, Quiet, Root, SkipBad, Steps, below_one, given_path

if TYPE_CHECKING:
    from dsui.data.dataset import ImageSet
    from dsui.runs.config import RunConfig


def train(
    data: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="A name of `dsui data list`, or folder:PATH.", autocompletion=completion(names.data)
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", parser=given_path, help="Where the run is kept.")],
    method: Annotated[
        str,
        typer.Option(metavar="NAME", help=f"{', '.join(names.methods())}.", autocompletion=completion(names.methods)),
    ] = "dsui",
    backbone: Annotated[
        str,
        typer.Option(
            metavar="NAME", help=f"{', '.join(names.backbones())}.", autocompletion=completion(names.backbones)
        ),
    ] = "resnet18",
    recipe: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"{', '.join(names.recipes())}, or a YAML file.",
            autocompletion=completion(names.recipes),
        ),
    ] = "paper",
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, metavar="NUMBER", help="Of weights, order, augmentation and dropout.")
    ] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting of recipe or method, as in epochs=3; may be repeated.",
            autocompletion=completion(names.settings),
        ),
    ] = None,
    known_classes: Annotated[
        str | None,
        typer.Option(
            "--known",
            metavar="CLASSES",
            help="Train on some classes only: neal-0 .. neal-4, arpl-0 .. arpl-4, or 0,2,5.",
        ),
    ] = None,
    outliers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Foreign training images, for methods that learn from them.",
            autocompletion=completion(names.data),
        ),
    ] = None,
    calibration: Annotated[
        float | None,
        typer.Option(
            callback=below_one,
            metavar="SHARE",
            help="Of the training images, set aside for the thresholds of `dsui predict` or to select by; by default "
            "0.1 for folder:PATH, else 0.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    root: Root = None,
    side: Annotated[
        int | None,
        typer.Option("--size", min=1, metavar="PIXELS", help="folder:PATH: side of the images, 32 by default."),
    ] = None,
    colours: Annotated[
        int | None,
        typer.Option("--channels", metavar="NUMBER", help="folder:PATH: 1 for grey, 3 for colour, the default."),
    ] = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    mode: Steps = "auto",
    deterministic: Annotated[bool, typer.Option("--deterministic", help="The same bits on every run; slower.")] = False,
    sync_norms: Annotated[bool, typer.Option(help="Several processes: batch norm over all of them.")] = True,
    checkpoint_seconds: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Shortest time between checkpoints, 60 by default.")
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write the log for TensorBoard.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a method on a data set.

    Stopped at any moment, it goes on with --resume.

    Example: dsui train --data cifar10 --recipe paper --out runs/cifar10-0
    """
    known("method", method, names.methods())
    known("backbone", backbone, names.backbones())
    known("mode", mode, MODES)
    if not recipe.lower().endswith((".yaml", ".yml")):
        known("recipe", recipe, (*names.recipes(), "FILE.yaml"))
    data = _named(data, outliers, folder_options=side is not None or colours is not None or skip_bad)
    before_training.check_apart(data, out)
    shape = (32 if side is None else side, 3 if colours is None else colours)
    assigned = dict(_assignment(setting) for setting in settings or [])

    import torch

    from dsui.cli.device import command_device
    from dsui.cli.training_screen import TrainingScreen, WithTensorBoard
    from dsui.runs.checkpoint import SHORTEST_PAUSE
    from dsui.runs.config import RunConfig
    from dsui.runs.folder import CONFIG
    from dsui.runs.images import held_out_images, training_images, usual_share
    from dsui.runs.recipe_file import load_recipe, method_options
    from dsui.training.distributed import joined
    from dsui.training.loop import fit

    kind = command_device(device).type
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = not deterministic
    with typed():
        overrides, options = method_options(method, assigned)
        chosen = load_recipe(recipe, data, overrides)
    resume = resume or _restarted(out / CONFIG)
    with joined(kind) as world:
        whole = _images(data, root, *shape, skip_bad)
        has_test = before_training.has_test(data)
        foreign = None if outliers is None else _images(outliers, root, *shape, skip_bad)
        channels, size = whole.shape[:2]
        share = calibration if calibration is not None else usual_share(data)
        config = RunConfig(
            data=data,
            backbone=backbone,
            method=method,
            seed=seed,
            size=size,
            channels=channels,
            recipe=chosen,
            options=options,
            outliers=outliers,
            known=known_classes,
            held_out=share,
            skip_bad=skip_bad,
        )
        images = training_images(config, whole)
        if world.leader and not quiet:
            before_training.tell(config, whole, images, has_test, kind)
        held_out = None if share == 0 else held_out_images(config, whole)
        place = torch.device(kind, world.local_rank) if kind == "cuda" else torch.device("cpu")
        with TrainingScreen(quiet or not world.leader, chosen.epochs) as screen:
            fit(
                config,
                images,
                out,
                place,
                world,
                WithTensorBoard(screen, out) if tensorboard and world.leader else screen,
                resume=resume,
                mode=MODES[mode],
                sync_norms=sync_norms,
                checkpoint_seconds=SHORTEST_PAUSE if checkpoint_seconds is None else checkpoint_seconds,
                outliers=foreign,
                held_out=held_out,
            )
        if world.leader and as_json:
            documents.show(_trained(config, out))
        elif world.leader and not quiet:
            typer.echo(_told(out, has_test))


def _told(out: Path, has_test: bool) -> str:
    """What a person wants to know of a finished run, and to do next."""
    held = _held_out(out)
    right = f"{held['accuracy']:.1%} of {held['images']:,} held-out images are right; " if held else ""
    then = f"evaluate {out}" if has_test else f"evaluate {out} --on held-out" if held else f"predict {out} IMAGES"
    return f"Trained; {right}the weights are in {out / 'model.safetensors'}. Next: dsui {then}"


def _trained(config: RunConfig, out: Path) -> dict[str, object]:
    """What a program wants to know of a finished run; the figures are those of its last epoch."""
    from dsui.runs.folder import LOG, WEIGHTS
    from dsui.runs.log import read_log

    rows = read_log(out / LOG).rows
    last = rows[-1] if rows else {}  # of a run whose log was deleted
    figures = {name: value for name, value in last.items() if name not in {"epoch", "step", "seconds"}}
    return {
        "run": out,
        "weights": out / WEIGHTS,
        "data": config.data,
        "method": config.method,
        "backbone": config.backbone,
        "recipe": config.recipe.name,
        "seed": config.seed,
        "epochs": config.recipe.epochs,
        "seconds": round(sum(row["seconds"] for row in rows), 3),
        "figures": figures,
        "held_out": _held_out(out),
    }


def _held_out(out: Path) -> dict[str, float] | None:
    """How many images a finished run held out, and the share it is right about; None of a run that held none out."""
    from dsui.runs.calibration import CALIBRATION, Calibration
    from dsui.runs.folder import WEIGHTS
    from dsui.runs.weights import read_metadata

    errors = Calibration.from_text(read_metadata(out / WEIGHTS)[CALIBRATION]).errors
    return {"images": len(errors), "accuracy": 1 - errors.double().mean().item()} if len(errors) else None


def _restarted(config: Path) -> bool:
    """torchrun started the job again after a process died: the same command then means to go on."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0 and config.exists()


def _named(data: str, outliers: str | None, folder_options: bool) -> str:
    """The data set as the run calls it: folder:PATH for folder:PATH/ as well."""
    named = [name for name in (data, outliers) if name is not None]
    for name in named:
        data_set(name)
    if folder_options and not any(name.startswith(FOLDER) for name in named):
        raise WrongUsage(f"--size, --channels and --skip-bad are for folder:PATH; {data} is as it was published.")
    if outliers is not None and not outliers.startswith(FOLDER):
        from dsui.data.registry import dataset_info, or_folder

        if "train" not in dataset_info(outliers).splits:
            advice = f"name another set{or_folder(outliers)}"
            raise WrongUsage(f"--outliers {outliers}: it has no training images; {advice}.")
    if outliers is not None and _place(outliers) == _place(data):
        raise WrongUsage(
            f"--outliers {outliers}: its images are not foreign to a network trained on them; name others."
        )
    return data.rstrip("/") if data.startswith(FOLDER) and data.rstrip("/") != FOLDER else data


def _place(name: str) -> str:
    """A data set's name, or where a folder lies, however it is spelled."""
    return os.path.realpath(os.path.expanduser(name.removeprefix(FOLDER))) if name.startswith(FOLDER) else name


def _images(data: str, root: Path | None, size: int, channels: int, skip_bad: bool) -> ImageSet:
    from dsui.data.registry import load

    if data.startswith(FOLDER):
        return load(data, "train", root, size=size, channels=channels, skip_bad=skip_bad)
    return load(data, "train", root)


def _assignment(setting: str) -> tuple[str, str]:
    key, sign, value = setting.partition("=")
    if not sign:
        raise WrongUsage(f"--set {setting} is no assignment; write --set KEY=VALUE, as in --set epochs=3.")
    return key.strip(), value.strip()
