"""Whether the options of `dsui train` for the network that it starts from go with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dsui.backbones.registry import HEAD
from dsui.backbones.spec import check_spec, is_spec
from dsui.cli.arguments import check_name
from dsui.cli.errors import UsageError
from dsui.data.registry import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from dsui.runs.config import RunConfig

LETTERBOX: Literal["letterbox"] = "letterbox"
FITS = ("crop", LETTERBOX)


def frozen(freeze: bool, freeze_until: str | None) -> dict[str, str]:
    """The setting of the recipe that --freeze and --freeze-until mean."""
    return {"freeze_until": freeze_until or HEAD} if freeze or freeze_until is not None else {}


def check(
    backbone: str,
    data: str,
    weights: Path | None,
    channels: int | None,
    freeze: bool,
    freeze_until: str | None,
    fit: str | None,
) -> None:
    """Raise where the options do not go with each other, before anything is loaded."""
    if fit is not None:
        check_name("fit", fit, FITS)
        if not data.startswith(FOLDER):
            raise UsageError(f"--fit {fit} is for folder:PATH; leave it out for {data}.")
    if freeze and freeze_until is not None:
        raise UsageError("--freeze leaves the whole backbone as it is and --freeze-until a part; choose one.")
    if is_spec(backbone):
        check_spec(backbone)
        if channels not in (None, 3):
            raise UsageError(f"--channels {channels}: {backbone} takes colour images; leave it out.")
        if not data.startswith(FOLDER):
            raise UsageError(
                f"--backbone {backbone} is for photographs in folder:PATH; for {data} write its features with "
                "`dsui embed` and train on features:FILE."
            )
        return
    if weights is not None:
        raise UsageError(f"--weights {weights}: {backbone} starts anew; name a --backbone of another library.")
    if freeze or freeze_until:
        raise UsageError(
            f"{backbone} starts with random weights, which should not be frozen; name a pretrained --backbone, as in "
            "hf:facebook/dinov2-small."
        )


def chosen_fit(data: str, fit: str | None, begun: RunConfig | None) -> Literal["centre", "letterbox"] | None:
    """How images of a folder become squares; `fit` is crop or letterbox, and `begun` is the run that goes on, if any.
    None for published data, and where a run of before goes on that kept nothing of it."""
    if not data.startswith(FOLDER):
        return None
    if fit is None and begun is not None:
        if begun.preparation is None:
            return None
        fit = str(begun.preparation["fit"])
    return LETTERBOX if fit == LETTERBOX else "centre"
