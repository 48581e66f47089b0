"""Arguments and options that several commands share, and checks of what a user typed for them."""

from __future__ import annotations

from collections.abc import Iterable
from os.path import expanduser, isdir
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import names
from dsui.cli.errors import UnknownDataError, UsageError
from dsui.cli.names import completion
from dsui.data.registry import FEATURES, FOLDER, OWN, PSEUDO, TRAIN_SUFFIX, folder_path, foreign_split
from dsui.errors import DataError, DsuiError
from dsui.excerpt import excerpt
from dsui.host_memory import keep_freed_memory
from dsui.spelling import unknown_name

if TYPE_CHECKING:
    import torch

    from dsui.training.step import Mode

DEVICES = ("auto", "cpu", "cuda")
MODES: dict[str, Mode | None] = {"auto": None, "eager": "eager", "compiled": "compiled", "graph": "graph"}

Device = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Where to compute: cpu, cuda, or auto for a GPU if there is one.",
        autocompletion=completion(lambda: DEVICES),
    ),
]
Foreign = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Data sets of images unlike the training images, as in svhn,folder:PATH; svhn@train are images of a "
        "training split.  [default: those on this machine]",
        autocompletion=completion(names.foreign),
    ),
]
KeepOutputs = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Keep the network's outputs in the run folders, to reuse them.")
]
StepMode = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="NAME",
        help=f"How training steps are executed: {', '.join(MODES)}.",
        autocompletion=completion(lambda: MODES),
    ),
]
OwnFunction = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        metavar="SPEC",
        help="For a run on a network of your own: the function that makes it, package.module:function. Its code runs "
        "only if you name it here.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Weights of the backbone, as safetensors, in place of those that its library fetches.",
    ),
]
Root = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where the data sets are.  [default: $DSUI_DATA, else ~/.cache/dsui/data]"),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="For folder:PATH: leave out files that cannot be read.")]


def allow_function(spec: str | None) -> None:
    """Let the function that the user named run, where one was named."""
    if spec is None:
        return
    from dsui.backbones.spec import allow, check_spec, is_code

    if not is_code(spec):
        raise UsageError(f"--backbone {spec}: the run knows this itself; leave it out.")
    check_spec(spec)
    allow(spec)


def check_name(kind: str, name: str, choices: Iterable[str]) -> str:
    """The name, or a UsageError that suggests the nearest choice."""
    every = list(choices)
    if name not in every:
        raise UsageError(unknown_name(kind, name, every))
    return name


def split_names(text: str) -> list[str]:
    """The names in "a, b", each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


def parse_names(kind: str, text: str, choices: Iterable[str]) -> list[str]:
    """The names in "a,b", each checked; every choice for "all"."""
    every = list(dict.fromkeys(choices))
    return every if text == "all" else [check_name(kind, name, every) for name in split_names(text)]


def parse_foreign(text: str) -> list[str] | None:
    """The data sets of --foreign; None where the option is empty, which means those on this machine."""
    return [check_foreign(name, PSEUDO) for name in split_names(text)] if text else None


def check_foreign(name: str, more: Iterable[str] = ()) -> str:
    """The name, if it is one of `dsui data list`, such a name with @train, one of `more`, or folder:PATH."""
    try:
        base, _ = foreign_split(name)
    except DataError as error:
        raise UnknownDataError(str(error)) from error
    if base == name:
        check_dataset(name, (f"NAME{TRAIN_SUFFIX}", *more))
    return name


def check_dataset(name: str, more: Iterable[str] = ()) -> str:
    """The name, if it is one of `dsui data list` or of `more`, folder:PATH or features:FILE."""
    if name in OWN:
        what = "path, as in folder:photos" if name == FOLDER else "file, as in features:photos.safetensors"
        raise UnknownDataError(f"{name} needs a {what}.")
    if not name.startswith(OWN) and name not in (every := (*names.data(), *more, f"{FOLDER}PATH", f"{FEATURES}FILE")):
        if isdir(expanduser(name)):
            raise UnknownDataError(f"no data set {excerpt(name)}; for the folder of that name write {FOLDER}{name}.")
        raise UnknownDataError(unknown_name("data set", name, every))
    return name


def check_outside_images(option: str, path: Path, data: str) -> None:
    """Raise if a path to write to lies in folder:PATH, where it would be taken for a class of images later."""
    if not data.startswith(FOLDER):
        return
    from dsui.data.folder import is_split

    folder = folder_path(data)
    image_folders = [folder / "train", folder / "test"] if is_split(folder) else [folder]
    if any(path.resolve().is_relative_to(images.resolve()) for images in image_folders):
        raise UsageError(f"{option} {path} lies among the images of {data}; choose a folder outside.")


def check_page(out: Path) -> None:
    """Refuse a place where a page cannot be written, before any work is done."""
    if out.is_dir():
        raise DsuiError(f"{out} cannot be written, because it is a folder; choose another --out.")
    if not out.absolute().parent.is_dir():
        raise DsuiError(f"{out} cannot be written, because its folder does not exist; choose another --out.")
    if out.suffix.lower() not in {".html", ".htm", ""}:
        raise UsageError(f"the page is HTML, but --out is {out}; name it {out.with_suffix('.html')}.")


def select_device(name: str) -> torch.device:
    """The device for --device cpu, cuda or auto. On a CPU the process keeps the memory that it frees."""
    check_name("device", name, DEVICES)
    from dsui.device import choose_device

    device = choose_device(name)
    if device.type == "cpu":
        keep_freed_memory()
    return device
