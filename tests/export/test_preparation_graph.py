"""The graph prepares images of any size as `dsui predict` does with Pillow, value by value."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import GraphProto
from PIL import Image

from dsui.backbones.preparation import GREY, Fit, Preparation
from dsui.data.decode import pixels, prepared
from dsui.errors import DsuiError
from dsui.export.onnx_session import Session
from dsui.export.preparation_graph import preparation_graph
from dsui.export.resize_filters import FILTERS

SIZE, EDGE = 24, 28
SIDES = ((25, 24), (24, 31), (100, 75), (75, 101), (13, 17), (301, 200), (29, 40), (10, 120), (96, 27), (64, 48))
"""Height and width: larger and smaller than the model's size, portrait and landscape, odd and even margins, and one
that Pillow resizes along columns first."""
ROUNDED = 1e-4
"""The share of values that may differ: sines of another library round a weight otherwise, one in 100,000 was seen."""
SMOOTH = ("bilinear", "bicubic", "lanczos", "hamming")
STATED: tuple[Fit, ...] = ("crop", "squash")
OWN: tuple[Fit, ...] = ("centre", "letterbox")


def noise(height: int, width: int, channels: int) -> NDArray[np.uint8]:
    return np.random.default_rng(height * width).integers(0, 256, (height, width, channels), dtype=np.uint8)


def differences(preparation: Preparation | None, channels: int) -> NDArray[np.float32]:
    """Of all values of all images of `SIDES`, in levels."""
    session = Session(preparation_graph(channels, SIZE, preparation).SerializeToString())
    found = []
    for height, width in SIDES:
        image = noise(height, width, channels)
        by_pillow = pixels(prepared(Image.fromarray(image.squeeze(2) if channels == 1 else image), SIZE, preparation))
        found.append(np.abs(session(image[None])["pixels"][0] - by_pillow))
    return np.stack(found)


def with_branches(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from with_branches(attribute.g)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_central_square_is_pillows(channels: int) -> None:
    found = differences(None, channels)
    assert (found > 0).mean() < ROUNDED


@pytest.mark.parametrize("rounds_down", [False, True])
@pytest.mark.parametrize("interpolation", SMOOTH)
@pytest.mark.parametrize("fit", STATED)
def test_what_libraries_state_is_pillows(fit: Fit, interpolation: str, rounds_down: bool) -> None:
    found = differences(
        Preparation(size=SIZE, edge=EDGE, fit=fit, interpolation=interpolation, rounds_down=rounds_down), 3
    )
    assert found.max() <= 1
    assert (found > 0).mean() < ROUNDED


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("interpolation", SMOOTH)
@pytest.mark.parametrize("fit", OWN)
def test_what_dsui_chooses_is_pillows(fit: Fit, interpolation: str, channels: int) -> None:
    found = differences(Preparation(size=SIZE, edge=SIZE, fit=fit, interpolation=interpolation), channels)
    assert found.max() <= 1
    assert (found > 0).mean() < ROUNDED


def test_bars_are_grey_and_the_picture_between_them_is_whole() -> None:
    session = Session(
        preparation_graph(3, SIZE, Preparation(size=SIZE, edge=SIZE, fit="letterbox")).SerializeToString()
    )
    found = session(np.full((1, 50, 100, 3), 255, dtype=np.uint8))["pixels"][0]
    assert (found[:, 6:18] == 255).all()
    assert (found[:, :6] == GREY).all()
    assert (found[:, 18:] == GREY).all()
    strip = session(np.full((1, 1000, 1, 3), 7, dtype=np.uint8))["pixels"][0]
    assert ((strip == 7).sum(axis=(1, 2)) == SIZE).all()  # one pixel wide, although a fortieth would be exact


@pytest.mark.parametrize("fit", STATED + OWN)
@pytest.mark.parametrize("interpolation", sorted(set(FILTERS) - set(SMOOTH)))
def test_filters_with_jumps_are_pillows_but_for_pixels_on_the_jump(interpolation: str, fit: Fit) -> None:
    edge = EDGE if fit in STATED else SIZE
    found = differences(Preparation(size=SIZE, edge=edge, fit=fit, interpolation=interpolation), 3)
    assert (found > 0).mean() < 0.04  # an old pixel exactly between two new ones goes to either; 2 % when written


@pytest.mark.parametrize(
    "preparation",
    [
        None,
        Preparation(size=SIZE, edge=EDGE, interpolation="bicubic"),
        *(Preparation(size=SIZE, edge=SIZE, fit=fit) for fit in OWN),
    ],
)
def test_images_of_the_models_size_pass_unchanged(preparation: Preparation | None) -> None:
    images = np.stack([noise(SIZE, SIZE, 3), noise(SIZE, SIZE, 3)[::-1]])
    found = Session(preparation_graph(3, SIZE, preparation).SerializeToString())(images)["pixels"]
    assert np.array_equal(found, images.transpose(0, 3, 1, 2))


def test_a_filter_that_the_graph_does_not_have_is_named() -> None:
    assert set(FILTERS) <= {each.name.lower() for each in Image.Resampling}
    with pytest.raises(DsuiError, match="Pillow's filter mks2021, which exported files do not have"):
        preparation_graph(3, SIZE, Preparation(size=SIZE, edge=EDGE, interpolation="mks2021"))


@pytest.mark.parametrize("interpolation", [None, *FILTERS])
@pytest.mark.parametrize("fit", STATED + OWN)
def test_every_constant_of_the_graph_is_used(interpolation: str | None, fit: Fit) -> None:
    preparation = interpolation and Preparation(size=SIZE, edge=EDGE, fit=fit, interpolation=interpolation)
    graphs = list(with_branches(preparation_graph(3, SIZE, preparation or None).graph))
    used = {name for each in graphs for node in each.node for name in node.input}
    assert {each.name for graph in graphs for each in graph.initializer} <= used
