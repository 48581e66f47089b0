"""`dsui embed`: the features of images under a pretrained network, for training without images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsui.cli import names
from dsui.cli.arguments import Device, Root, SkipBad, Weights, check_dataset, check_outside_images, select_device
from dsui.cli.json_output import print_json
from dsui.cli.names import completion
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.cli.terminal import print_line
from dsui.errors import DsuiError


def embed(
    backbone: Annotated[
        str,
        typer.Option(
            metavar="SPEC", help="timm:NAME, torchvision:NAME, hf:NAME or package.module:function of your own."
        ),
    ],
    data: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="folder:PATH with a folder for each class, or without any for images without labels; or a data set "
            "of `dsui data list`.",
            autocompletion=completion(names.data),
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", parser=parse_path, help="Where to write: a .safetensors file.")],
    weights: Weights = None,
    size: Annotated[
        int | None, typer.Option(min=8, metavar="PIXELS", help="Side of the images.  [default: the network's own]")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Images in a forward pass.")] = 64,
    root: Root = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the features of images to a file.

    A network that stays as it is turns every image into a vector. `dsui train --data features:FILE` then takes
    seconds to minutes on a CPU. A command that was stopped goes on where it was when it is repeated.

    Example: dsui embed --backbone hf:NAME --data folder:mine --out m.safetensors
    """
    check_dataset(data)
    check_outside_images("--out", out, data)
    from dsui.backbones.named import load_backbone
    from dsui.backbones.spec import allow
    from dsui.cli.progress import ProgressBars
    from dsui.cli.terminal import stderr_console
    from dsui.deploy.embedding import embed
    from dsui.deploy.sources import images_to_embed
    from dsui.runs.embedding import Embedder, Embedding

    if out.exists():
        raise DsuiError(f"{out} exists; remove it or choose another --out.")
    allow(backbone)  # the user named it just now
    images = images_to_embed(data, root, skip_bad)
    loaded = load_backbone(backbone, weights, size, classes=len(images.classes) or None)
    embedder = Embedder(loaded, select_device(device))
    with ProgressBars(stderr_console(quiet)) as bars:
        begun = embed(images, embedder, Embedding.of(backbone, weights, loaded), out, batch, bars.update, bars.note)
        if begun:
            bars.note(f"{begun:,} images were done already.")
        if images.left_out:
            bars.note(f"{images.left_out:,} unreadable files are left out.")
    if as_json:
        facts = {"file": out, "images": len(images.names), "features": embedder.width, "classes": images.classes}
        print_json({**facts, "resumed_from": begun, "backbone": backbone})
    elif not quiet:
        following = f"dsui train --data features:{out} --out RUN" if len(images.classes) > 1 else ""
        print_line(
            f"{len(images.names):,} images as {embedder.width:,} features each are in {out}."
            + (f" Next: {following}" if following else "")
        )
