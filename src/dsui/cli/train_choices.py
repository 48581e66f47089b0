"""What `dsui train` chooses where the user leaves it open. For a folder of images, training fits the machine:

    |                         | with a GPU                      | without one                   |
    | network                 | resnet18                        | small                         |
    | size                    | that of the files, at most 224  | that of the files, at most 64 |
    | epochs from nothing     | 100; fewer above 10,000 images  | 100; fewer above 2,000 images |
    | epochs of fine-tuning   | 20                              | 5                             |

The epochs and the batch are chosen for the recipe `photos` alone. A network of another library has its own size. A
resumed run keeps what was chosen when it was begun, wherever it goes on. The recipe `features` has a batch that is
chosen by the number of rows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dsui.backbones.spec import is_spec
from dsui.cli import names
from dsui.data.registry import FEATURES, FOLDER, folder_path, own_path

if TYPE_CHECKING:
    from pathlib import Path

    from dsui.runs.config import RunConfig

RECIPE, FROZEN_RECIPE = "photos", "features"
KEPT = {RECIPE: ("epochs", "batch"), FROZEN_RECIPE: ("batch",)}
"""What a resumed run keeps of the settings that were chosen for it."""
NETWORK = {"cuda": "resnet18", "cpu": "small"}
LARGEST_SIDE = {"cuda": 224, "cpu": 64}
PASSES = {"cuda": 1_000_000, "cpu": 200_000}
"""Images that are trained on at most, counted in every epoch; so many of the largest side, or more of a smaller one."""
LEAST_EPOCHS = {"cuda": 30, "cpu": 20}
TUNING_EPOCHS = {"cuda": 20, "cpu": 5}
STEPS = 16
"""In an epoch, at least if the images are enough for it."""
SMALLEST_BATCH, LARGEST_BATCH = 32, 128


@dataclass(frozen=True)
class Choice:
    """The side of the images, the recipe's settings that were chosen, and sentences that say so."""

    size: int | None
    settings: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def begun_run(data: str, out: Path, resume: bool) -> RunConfig | None:
    """The run on a folder that goes on: what the user does not choose again stays as it was begun."""
    if not data.startswith(FOLDER):
        return None
    from dsui.runs.folder import CONFIG, read_config

    config = out / CONFIG
    if not config.exists() or not (resume or is_restarted(config)):
        return None
    begun = read_config(config)
    return begun if begun.data.startswith(FOLDER) else None


def is_restarted(config: Path) -> bool:
    """Whether torchrun started the job again after a process died: the same command then continues the run."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0 and config.exists()


def network(device: str, begun: RunConfig | None) -> str:
    """The backbone, for a type of device; `begun` is the run that goes on, if any."""
    return NETWORK[device] if begun is None else begun.backbone


def recipe(begun: RunConfig | None, freeze: bool) -> str:
    """That of the run that goes on, if any. Where the whole network is frozen, the head is trained on features."""
    if begun is not None and begun.recipe.name in names.recipes():
        return begun.recipe.name
    return FROZEN_RECIPE if freeze else RECIPE


def choose(data: str, backbone: str, recipe: str, size: int | None, device: str, begun: RunConfig | None) -> Choice:
    """For a run on `data`; nothing but `size` for published images."""
    if data.startswith(FEATURES) and recipe == FROZEN_RECIPE:
        from dsui.data.features import feature_set, usual_batch

        return Choice(size, {"batch": str(usual_batch(len(feature_set(own_path(data), "train").labels)))})
    if not data.startswith(FOLDER):
        return Choice(size)
    if begun is not None:
        return Choice(size or begun.size, {name: str(getattr(begun.recipe, name)) for name in KEPT.get(recipe, ())})
    notes = []
    if size is None and not is_spec(backbone):
        size, note = _side(data, device)
        notes.append(note)
    if recipe == FROZEN_RECIPE:
        from dsui.data.features import usual_batch

        return Choice(size, {"batch": str(usual_batch(_count(data)))}, tuple(notes))
    if recipe != RECIPE:
        return Choice(size, {}, tuple(notes))
    epochs, batch = _lengths(data, device, size, pretrained=is_spec(backbone))
    return Choice(size, {"epochs": str(epochs), "batch": str(batch)}, tuple(notes))


def length(run: RunConfig) -> str:
    """How long a run with the recipe `photos` takes, and from where it starts."""
    start = "goes on from its own weights" if is_spec(run.backbone) else "starts from random weights"
    epochs = f"{run.recipe.epochs} epoch{'s' * (run.recipe.epochs > 1)}"
    return f"{run.backbone} {start} and trains for {epochs} in batches of {run.recipe.batch}."


def _side(data: str, device: str) -> tuple[int, str]:
    from dsui.data.folder_side import usual_side

    most = LARGEST_SIDE[device]
    side, median = usual_side(folder_path(data), most)
    became = f"The images become {side} x {side} pixels: the shorter sides of the files have a median of {median}"
    if median <= most:
        return side, f"{became}; --size chooses another size."
    where = "without a GPU" if device == "cpu" else "by default"
    return side, f"{became}, and {most} are the most {where}; --size chooses another size."


def _lengths(data: str, device: str, size: int | None, *, pretrained: bool) -> tuple[int, int]:
    """Epochs and batch."""
    from dsui.runs.recipe_file import load_recipe

    count = _count(data)
    batch = min(max(_power_of_two(count // STEPS), SMALLEST_BATCH), LARGEST_BATCH, _power_of_two(count // 2))
    if pretrained:
        return TUNING_EPOCHS[device], batch
    share = ((size or LARGEST_SIDE[device]) / LARGEST_SIDE[device]) ** 2
    affordable = int(PASSES[device] / (max(count, 1) * share))
    return min(max(affordable, LEAST_EPOCHS[device]), load_recipe(RECIPE, data).epochs), batch


def _count(data: str) -> int:
    """Of the training images of a folder."""
    from dsui.data.folder import split_files

    return sum(map(len, split_files(folder_path(data), "train").files_of_class.values()))


def classes(data: str) -> int | None:
    """How many a folder has; None for other data, which no named backbone is trained on."""
    if not data.startswith(FOLDER):
        return None
    from dsui.data.folder import split_files

    return len(split_files(folder_path(data), "train").files_of_class)


def _power_of_two(most: int) -> int:
    """The largest one up to `most`, and at least 2."""
    return 1 << max(most.bit_length() - 1, 1)
