from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from dsui.data.augment import Transform, drawn_quarters, draws, splitmix64, turned
from dsui.data.augment import _signed as signed
from dsui.data.augment import _splitmix64 as mix

BATCH = torch.arange(7)


def images(count: int = 7, channels: int = 3, side: int = 6, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, channels, side, side), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize(("padding", "flip"), [(2, True), (4, False), (0, True), (0, False)])
@pytest.mark.parametrize("channels", [1, 3])
def test_augmentation_is_pad_crop_mirror_normalise(padding: int, flip: bool, channels: int) -> None:
    batch, mean, std = images(channels=channels), [0.1, 0.2, 0.3][:channels], [0.5, 0.6, 0.7][:channels]
    transform = Transform(padding, flip, mean, std, seed=5)
    found = transform.augmented(batch, BATCH, epoch=3)
    down, right, mirrored = draws(5, BATCH, 3, padding)
    for i in range(7):
        padded = np.pad(batch[i].numpy(), ((0, 0), (padding, padding), (padding, padding)))
        crop = padded[:, down[i] : down[i] + 6, right[i] : right[i] + 6]
        if flip and mirrored[i]:
            crop = crop[:, :, ::-1]
        wanted = (crop / 255 - np.reshape(mean, (-1, 1, 1))) / np.reshape(std, (-1, 1, 1))
        np.testing.assert_allclose(found[i].numpy(), wanted, atol=1e-6)  # float32 of values up to 2


def test_plain_is_normalisation_alone_and_leaves_its_input() -> None:
    batch = images()
    before = batch.clone()
    torch.testing.assert_close(Transform().plain(batch), batch.float() / 127.5 - 1, rtol=0, atol=1e-6)
    assert torch.equal(batch, before)


def test_a_sample_is_augmented_alike_in_any_batch_and_order() -> None:
    transform, batch = Transform(), images()
    whole = transform.augmented(batch, BATCH, 2)
    shuffle = torch.tensor([4, 0, 6, 2])
    assert torch.equal(transform.augmented(batch[shuffle], shuffle, 2), whole[shuffle])
    assert torch.equal(transform.augmented(batch, BATCH, torch.tensor(2)), whole)
    for other in (transform.augmented(batch, BATCH, 3), Transform(seed=1).augmented(batch, BATCH, 2)):
        assert not torch.equal(other, whole)


def test_crops_and_mirrors_are_uniform_and_independent_of_each_other_and_of_the_epoch() -> None:
    """Chi-square tests over 100,000 draws; a p-value below 1e-4 comes by chance once in ten thousand."""
    indices = torch.arange(100_000)
    down, right, mirrored = draws(0, indices, 0, 4)
    later = draws(0, indices, 1, 4)
    cells = {
        "place and mirror": (down * 9 + right) * 2 + mirrored,
        "down in two epochs": down * 9 + later[0],
        "mirror in two epochs": mirrored * 2 + later[2],
        "down of neighbours": down[:-1] * 9 + down[1:],
    }
    for name, cell in cells.items():
        assert chisquare(torch.bincount(cell).numpy()).pvalue > 1e-4, name
    assert int(down.max()) == int(right.max()) == 8


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_the_tensor_hash_is_the_integer_hash(value: int) -> None:
    assert mix(torch.tensor([value])).item() == signed(splitmix64(value))


def test_the_hash_is_splitmix64() -> None:
    """The generator's first three outputs from state 1234567, as its reference code prints them."""
    golden, state, outputs = 0x9E3779B97F4A7C15, 1234567, []
    for _ in range(3):
        outputs.append(splitmix64(state))
        state = (state + golden) % 2**64
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("seed", [-1, 2**70])
def test_any_integer_is_a_seed(seed: int) -> None:
    assert Transform(seed=seed).augmented(images(), BATCH, 0).isfinite().all()


def test_bad_settings_are_named() -> None:
    for arguments, message in (
        ({"padding": -1}, "padding must not be negative"),
        ({"std": (0.0,)}, "std must be positive"),
        ({"mean": (0.5, 0.5)}, "the same length"),
    ):
        with pytest.raises(ValueError, match=message):
            Transform(**arguments)


def test_turns_are_exact_quarter_turns_of_each_image_by_its_own_draw() -> None:
    batch, quarters = images(), torch.tensor([1, 2, 3, 3, 1, 2, 0])
    found = turned(batch, quarters)
    for image, quarter, result in zip(batch, quarters.tolist(), found, strict=True):
        np.testing.assert_array_equal(result.numpy(), np.rot90(image.numpy(), quarter, (1, 2)))


def test_turns_are_uniform_and_independent_of_crop_and_epoch() -> None:
    """As the test of crops and mirrors above."""
    indices = torch.arange(100_000)
    quarters, later = drawn_quarters(0, indices, 0) - 1, drawn_quarters(0, indices, 1) - 1
    down, right, mirrored = draws(0, indices, 0, 4)
    cells = {
        "turn": quarters,
        "turn in two epochs": quarters * 3 + later,
        "turn and mirror": quarters * 2 + mirrored,
        "turn and place": quarters * 9 + (down + right) % 9,
        "turn of neighbours": quarters[:-1] * 3 + quarters[1:],
    }
    for name, cell in cells.items():
        assert chisquare(torch.bincount(cell).numpy()).pvalue > 1e-4, name
    assert torch.equal(drawn_quarters(0, indices[[7]], torch.tensor(1)) - 1, later[[7]])
