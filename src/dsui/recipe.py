"""How a run is trained, as data: every setting except data, backbone, method and seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any, Literal

from dsui.errors import DsuiError
from dsui.excerpt import excerpt

LARGEST_FACTOR = 1000
MOST_EPOCHS, MOST_PADDING = 100_000, 256
"""Far more than any training needs; a typing error may ask for more memory than there is."""

ADDED_LATER = (
    "doubles",
    "doubles_weight",
    "doubles_copies",
    "regmixup",
    "freeze_until",
    "backbone_rate",
    "layer_decay",
    "smallest_crop",
    "jitter",
    "balance",
    "patience",
)
"""Fields that the first recipes did not have. Their defaults are what those recipes did, and a run with these defaults
is identified without them, so that runs, rows and cells made before keep their names."""


class RecipeError(DsuiError):
    """A recipe cannot be found, read or used; the sentence names the key or file and what is expected."""


@dataclass(frozen=True)
class Recipe:
    """Every setting of a run except data, backbone, method and seed. Rates are per step, lengths in epochs.

    The defaults are those of the recipe `paper`, so that a field added later leaves older runs readable.
    """

    name: str = "paper"
    epochs: int = 100
    batch: int = 256
    optimizer: Literal["adam", "sgd"] = "adam"
    peak_rate: float = 7.5e-4
    schedule: Literal["one-cycle", "cosine", "held-cosine"] = "one-cycle"
    cycle: int = 70
    """Epochs of the one-cycle's rise and fall."""
    rate_warm_up: int = 0
    """Epochs of linear rise before a cosine."""
    momentum: float = 0.9
    """Of SGD."""
    nesterov: bool = False
    weight_decay: float = 5e-4
    decoupled_decay: bool = False
    """Decay beside the gradient (AdamW) instead of in it (L2)."""
    decay_norms: bool = True
    """Whether batch-norm parameters and biases decay."""
    neck: bool = True
    """Whether the paper's three-layer fully connected net stands between backbone and head."""
    dropout: float = 0.2
    """Of the neck."""
    released_start: bool = False
    """Whether the backbone starts as in the authors' code."""
    padding: int = 4
    """Pixels by which a crop is shifted at most."""
    flip: bool = True
    """Whether half of the training images are mirrored."""
    smallest_crop: float = 0.0
    """The least share of an image's area that a crop of random size and shape shows, enlarged to the whole
    (`dsui.data.random_crop`); 0: crops keep their size and are shifted by `padding`."""
    jitter: float = 0.0
    """By how much brightness, contrast and saturation change at most (`dsui.data.colour_jitter`); 0 is off."""
    mean: tuple[float, ...] = (0.5,)
    """Subtracted from pixels in [0, 1], per channel or one for all; then divided by `std`."""
    std: tuple[float, ...] = (0.5,)
    average: Literal["none", "ema", "swa"] = "none"
    ema_decay: float = 0.999
    swa_start: float = 0.75
    """Share of the epochs after which weights are averaged, and a held cosine is held."""
    sam: float = 0.0
    """Radius of sharpness-aware minimisation; 0 is off."""
    doubles: Literal["none", "turns"] = "none"
    """Whether classes have doubles: further classes for their own images in quarter turns (`dsui.methods.doubles`)."""
    doubles_weight: float = 1.0
    """Of the loss of a turned copy beside that of the upright images."""
    doubles_copies: Literal[1, 3] = 1
    """Turned copies of each image in a batch: one in a random turn, or one in every turn."""
    regmixup: float = 0.0
    """Weight of the loss of a mixed copy of the batch (`dsui.training.copies`); 0 is off."""
    clip: float = 0.0
    """Largest norm of the gradient; 0 is off."""
    balance: Literal["none", "sampling", "logits"] = "none"
    """For classes of uneven size: "sampling" draws all classes equally often (`dsui.data.sampling`), "logits" adjusts
    the logits in the loss (`dsui.methods.method`)."""
    patience: int = 0
    """Epochs without a lower held-out loss after which training stops; the best weights are kept
    (`dsui.training.early_stopping`). 0: it never stops early."""
    freeze_until: str = ""
    """The first layer of the backbone that is trained: those before it stay as they are (`dsui.backbones.freezing`).
    "head": none of the backbone is trained; empty: all of it."""
    backbone_rate: float = 1.0
    """Factor on the rate of the backbone's parameters."""
    layer_decay: float = 1.0
    """Factor on the rate of each layer of the backbone against the next one (`dsui.training.layer_rates`)."""
    bfloat16: bool = True
    """Run convolutions and hidden layers in bfloat16 on a GPU."""
    method_options: Mapping[str, object] = field(default_factory=dict)
    """Options of methods by their names; a method takes those that it has (see `dsui.methods.method`)."""

    def settings(self) -> dict[str, Any]:
        """The fields, and the options of methods beside them, as a recipe file lists them."""
        own = asdict(self)
        options = own.pop("method_options")
        return {**own, **options}

    def identifying(self) -> dict[str, Any]:
        """The settings without those `ADDED_LATER` that have their default."""
        unchanged = {each.name for each in fields(self) if each.name in ADDED_LATER and self._has_default(each)}
        return {key: value for key, value in self.settings().items() if key not in unchanged}

    def _has_default(self, field: Field[Any]) -> bool:
        return bool(getattr(self, field.name) == field.default)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Recipe:
        """The reverse of `settings`: what is not a field is an option of a method."""
        own = {each.name for each in fields(cls)} - {"method_options"}
        options = {key: value for key, value in settings.items() if key not in own}
        return cls(**{key: value for key, value in settings.items() if key in own}, method_options=options)

    def __post_init__(self) -> None:
        for key, holds, expected in self._ranges():
            if not holds:
                shown = excerpt(getattr(self, key))
                raise RecipeError(f"recipe {excerpt(self.name)}: {key} is {shown}; it must be {expected}.")

    def _ranges(self) -> Iterator[tuple[str, bool, str]]:
        """The key, whether training can use its value, and what is expected of it."""
        yield "epochs", 1 <= self.epochs <= MOST_EPOCHS, f"between 1 and {MOST_EPOCHS:,}"
        yield "batch", self.batch >= 2, "at least 2"
        yield "peak_rate", 0 < self.peak_rate < math.inf, "positive and finite"
        if self.schedule == "one-cycle":
            yield "cycle", 1 <= self.cycle <= self.epochs, f"between 1 and the {self.epochs} epochs"
        yield "rate_warm_up", 0 <= self.rate_warm_up < self.epochs, f"at least 0 and below the {self.epochs} epochs"
        yield "momentum", 0 <= self.momentum < 1, "at least 0 and below 1"
        if self.optimizer == "sgd" and self.momentum == 0:
            yield "nesterov", not self.nesterov, "false where momentum is 0"
        yield "dropout", 0 <= self.dropout < 1, "at least 0 and below 1"
        yield "padding", 0 <= self.padding <= MOST_PADDING, f"between 0 and {MOST_PADDING}"
        yield "smallest_crop", 0 <= self.smallest_crop <= 1, "between 0 and 1"
        if self.smallest_crop > 0:
            yield "padding", self.padding == 0, "0 where smallest_crop cuts out a part of the image"
        yield "jitter", 0 <= self.jitter < 1, "at least 0 and below 1"
        yield "mean", len(self.mean) >= 1 and all(map(math.isfinite, self.mean)), "at least one finite number"
        yield "std", all(0 < value < math.inf for value in self.std), "positive and finite"
        yield "std", len(self.std) == len(self.mean), f"as long as mean, which has {len(self.mean)} values"
        for key in ("weight_decay", "sam", "clip", "regmixup"):
            yield key, 0 <= getattr(self, key) < math.inf, "at least 0 and finite"
        for key in ("backbone_rate", "layer_decay"):
            yield key, 0 < getattr(self, key) <= LARGEST_FACTOR, f"above 0 and at most {LARGEST_FACTOR}"
        yield "patience", 0 <= self.patience <= MOST_EPOCHS, f"between 0 and {MOST_EPOCHS:,}"
        yield "doubles_weight", 0 < self.doubles_weight < math.inf, "positive and finite"
        yield "ema_decay", 0 < self.ema_decay < 1, "between 0 and 1, both excluded"
        yield "swa_start", 0 <= self.swa_start < 1, "at least 0 and below 1"
        if self.schedule == "held-cosine":
            rises = self.rate_warm_up / self.epochs
            yield "swa_start", self.swa_start >= rises, f"at least {rises:g}, where a held cosine has risen"
            yield "average", self.average != "none", "swa or ema where the rate is held: only a mean comes to rest"
