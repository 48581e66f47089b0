"""Random crop, flip, colours and normalisation of a whole batch on its own device.

A hash of (seed, epoch, sample index) alone decides where an image is cropped, whether it is flipped, how its colours
change, and by how many quarter turns its double is turned: the order of execution, resuming, the batch and the number
of processes change nothing.

    augmented = (crop(pad(x)) or its mirror image) / 255, then (. - mean) / std        x: 8-bit pixels

Crops are shifted by some pixels, with black padding, or they are of random size and shape (`dsui.data.random_crop`).
Colours change as `dsui.data.colour_jitter` says. The hash is splitmix64 (Steele et al., OOPSLA 2014), chained over the
three numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsui.data import colour_jitter, random_crop

MASK = (1 << 64) - 1
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
FIELD_BITS = 20
"""Bits of the hash for each draw; the bias of a remainder of 9 in 2^20 is below 1e-5."""
FIELD = (1 << FIELD_BITS) - 1
FIELDS = 3
"""Draws from one hash."""


class Transform(nn.Module):
    """8-bit images [B, C, H, W] to network inputs, float32 unless the module is converted to another type.

    `mean` and `std` are per channel, or one number for all, for pixels in [0, 1]; the default maps them to [-1, 1].
    `padding` is the largest shift of a crop in each direction; or crops show `smallest_crop` of the image or more.
    `jitter` is the strength of the changes of colour. It is a module so that `to` moves its constants too.
    """

    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        padding: int = 4,
        flip: bool = True,
        mean: Sequence[float] = (0.5,),
        std: Sequence[float] = (0.5,),
        seed: int = 0,
        smallest_crop: float = 0.0,
        jitter: float = 0.0,
    ) -> None:
        super().__init__()
        if padding < 0:
            raise ValueError(f"padding must not be negative, got {padding}.")
        if not 0 <= smallest_crop <= 1 or not 0 <= jitter < 1:
            raise ValueError(
                f"smallest_crop is {smallest_crop} and jitter {jitter}; they must be 0 to 1, and jitter below 1."
            )
        if len(mean) != len(std) or not all(value > 0 for value in std):
            raise ValueError(
                f"mean {list(mean)} and std {list(std)} must have the same length, and std must be positive."
            )
        self.padding, self.flip, self.seed = padding, flip, seed
        self.smallest_crop, self.jitter = smallest_crop, jitter
        deviation = torch.tensor(std, dtype=torch.float64).view(-1, 1, 1)
        centre = torch.tensor(mean, dtype=torch.float64).view(-1, 1, 1)
        self.register_buffer("scale", (1 / (255 * deviation)).float(), persistent=False)
        self.register_buffer("shift", (-centre / deviation).float(), persistent=False)

    def plain(self, images: Tensor) -> Tensor:
        """Only normalised, for evaluation."""
        return images.to(self.scale.dtype).mul_(self.scale).add_(self.shift)

    def augmented(self, images: Tensor, indices: Tensor, epoch: int | Tensor) -> Tensor:
        """Cropped, flipped, recoloured and normalised; `indices` [B] are the samples' places in their data set.

        An epoch given as a tensor stays on its device, so that everything can be captured as one graph.
        """
        if self.smallest_crop == 0 and self.jitter == 0:
            return self.plain(self._shifted(images, indices, epoch))
        uniform = uniforms(self.seed, indices, epoch, random_crop.DRAWS + colour_jitter.DRAWS)
        if self.smallest_crop > 0:
            mirrored = self._mirrored(indices, epoch)
            changed = random_crop.cropped(images.float(), uniform[: random_crop.DRAWS], self.smallest_crop, mirrored)
        else:
            changed = self._shifted(images, indices, epoch).float()
        if self.jitter > 0:
            changed = colour_jitter.jittered(changed, uniform[random_crop.DRAWS :], self.jitter)
        return self.plain(changed)

    def _mirrored(self, indices: Tensor, epoch: int | Tensor) -> Tensor:
        drawn = draws(self.seed, indices, epoch, 0)[2].bool()
        return drawn if self.flip else drawn & False

    def _shifted(self, images: Tensor, indices: Tensor, epoch: int | Tensor) -> Tensor:
        """8-bit images, padded, cropped to their size and flipped."""
        down, right, mirrored = draws(self.seed, indices, epoch, self.padding)
        height, width = images.shape[2:]
        padded = F.pad(images, (self.padding,) * 4)[:, None]
        if self.flip:
            # To crop the mirror image at the mirrored place equals cropping and then mirroring, and saves a copy.
            padded = torch.cat([padded, padded.flip(4)], 1)
            right = torch.where(mirrored.bool(), 2 * self.padding - right, right)
        windows = padded.unfold(3, height, 1).unfold(4, width, 1)
        sample = torch.arange(len(images), device=images.device)
        return windows[sample, mirrored if self.flip else mirrored * 0, :, down, right]


def draws(seed: int, indices: Tensor, epoch: int | Tensor, padding: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each sample, the crop's offset down and to the right, 0 to 2 `padding`, and 1 if it is mirrored, else 0."""
    bits = _hash(seed, indices, epoch)
    down, right = (bits >> 1) & FIELD, (bits >> (1 + FIELD_BITS)) & FIELD
    places = 2 * padding + 1
    return down % places, right % places, bits & 1


def drawn_quarters(seed: int, indices: Tensor, epoch: int | Tensor) -> Tensor:
    """[B] by how many quarter turns each sample's double is turned: 1, 2 or 3."""
    return 1 + ((_hash(seed, indices, epoch) >> (1 + 2 * FIELD_BITS)) & FIELD) % 3


def uniforms(seed: int, indices: Tensor, epoch: int | Tensor, count: int) -> Tensor:
    """[count, B] float32 numbers in [0, 1), beside those of `draws`: multiples of 2^-20, uniform and independent."""
    bits, found = _hash(seed, indices, epoch), list[Tensor]()
    while len(found) < count:
        bits = _splitmix64(bits)
        found += [(bits >> (1 + FIELD_BITS * place)) & FIELD for place in range(FIELDS)]
    return torch.stack(found[:count]).float() / (1 << FIELD_BITS)


def turned(images: Tensor, quarters: Tensor) -> Tensor:
    """Images [B, C, H, H], each turned by its own number of quarter turns [B], counter-clockwise as `torch.rot90`."""
    result = images
    for quarter in (1, 2, 3):
        chosen = (quarters == quarter)[:, None, None, None]
        result = torch.where(chosen, images.rot90(quarter, (2, 3)), result)
    return result


def splitmix64(value: int) -> int:
    """The hash of a Python integer, in 0 .. 2^64 - 1."""
    value = (value + GOLDEN) & MASK
    value = ((value ^ (value >> 30)) * FIRST) & MASK
    value = ((value ^ (value >> 27)) * SECOND) & MASK
    return value ^ (value >> 31)


def _hash(seed: int, indices: Tensor, epoch: int | Tensor) -> Tensor:
    """[B] 64 bits for each sample."""
    epoch = torch.as_tensor(epoch, dtype=torch.int64, device=indices.device)
    return _splitmix64(_splitmix64(epoch ^ _signed(splitmix64(seed))) ^ indices)


def _splitmix64(values: Tensor) -> Tensor:
    """`splitmix64` of int64 tensors, whose sums and products wrap around as unsigned ones do."""
    values = values + _signed(GOLDEN)
    values = (values ^ _unsigned_shift(values, 30)) * _signed(FIRST)
    values = (values ^ _unsigned_shift(values, 27)) * _signed(SECOND)
    return values ^ _unsigned_shift(values, 31)


def _unsigned_shift(values: Tensor, places: int) -> Tensor:
    return (values >> places) & ((1 << (64 - places)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
