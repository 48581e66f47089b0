"""Networks of other libraries: their features, how their images are made, and that their weights run no code.

transformers is there, with tiny networks and random weights; timm and torchvision, which do not import beside PyTorch
for the CPU alone, have stand-ins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from dsui.backbones.libraries import from_timm, from_torchvision, from_transformers
from dsui.backbones.named import load_backbone
from dsui.backbones.preparation import Preparation
from dsui.errors import DsuiError
from tests.support.tiny_networks import SIDE, Counted, stand_in_timm, stand_in_torchvision, tiny_vit

IMAGES = torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
SIZES = [(50, 40), (33, 47), (32, 32), (31, 90), (101, 64)]


def photograph(size: tuple[int, int]) -> Image.Image:
    pixels = np.random.default_rng(sum(size)).integers(0, 256, (*size, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def same_pixels(one: Image.Image, other: Image.Image) -> bool:
    return np.array_equal(np.asarray(one), np.asarray(other))


def networks() -> dict[str, tuple[Any, Any]]:
    """Classes of transformers with a tiny config each."""
    import transformers as t

    tokens: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": SIDE,
        "patch_size": 8,
    }
    return {
        "vit": (t.ViTModel, t.ViTConfig(**tokens, intermediate_size=32)),
        "deit": (t.DeiTModel, t.DeiTConfig(**tokens, intermediate_size=32)),
        "dinov2": (t.Dinov2Model, t.Dinov2Config(**tokens)),
        "clip": (t.CLIPVisionModel, t.CLIPVisionConfig(**tokens, intermediate_size=32)),
        "convnext": (t.ConvNextModel, t.ConvNextConfig(hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1])),
        "resnet": (t.ResNetModel, t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])),
        "swin": (
            t.SwinModel,
            t.SwinConfig(image_size=SIDE, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4),
        ),
    }


@pytest.mark.parametrize("kind", ["vit", "deit", "dinov2", "clip", "convnext", "resnet", "swin"])
def test_features_are_the_pooled_output_of_the_library(kind: str, tmp_path: Path) -> None:
    from transformers import ViTImageProcessor

    make, config = networks()[kind]
    torch.manual_seed(0)
    model = make(config).eval()
    model.save_pretrained(tmp_path / kind)
    ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(tmp_path / kind)
    loaded = load_backbone(f"hf:{tmp_path / kind}")
    with torch.no_grad():
        expected = model(IMAGES).pooler_output.flatten(1)
        found = loaded.backbone.eval()(IMAGES)
    assert torch.equal(found, expected)
    assert loaded.backbone.out_features == expected.shape[1]


def processors() -> dict[str, Any]:
    import transformers as t

    square, shortest = {"height": SIDE, "width": SIDE}, {"shortest_edge": 38}
    return {
        "squash": t.ViTImageProcessor(size=square),
        "bicubic crop": t.BitImageProcessor(size=shortest, crop_size=square, resample=3),
        "clip": t.CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=square),
        "share": t.ConvNextImageProcessor(size={"shortest_edge": SIDE}, crop_pct=0.875),
    }


@pytest.mark.parametrize("kind", ["squash", "bicubic crop", "clip", "share"])
def test_images_are_prepared_to_the_pixel_as_the_library_does(kind: str, tmp_path: Path) -> None:
    folder, processor = tiny_vit(tmp_path), processors()[kind]
    processor.save_pretrained(folder)
    preparation = load_backbone(f"hf:{folder}").preparation
    mean, std = (np.array(values)[:, None, None] for values in (preparation.mean, preparation.std))
    for size in SIZES:
        image = photograph(size)
        expected = processor(image, return_tensors="np")["pixel_values"][0]
        found = np.asarray(preparation.apply(image), dtype=np.float64).transpose(2, 0, 1) / 255
        # a pixel that differs by one level differs by 0.01 or more here
        assert (found - mean) / std == pytest.approx(expected, abs=1e-5), size


def test_a_run_makes_the_same_preparation_again_from_what_it_keeps(tmp_path: Path) -> None:
    preparation = load_backbone(f"hf:{tiny_vit(tmp_path)}").preparation
    assert Preparation.of(preparation.size, preparation.mean, preparation.std, preparation.facts()) == preparation


def test_a_transformer_takes_images_of_another_size(tmp_path: Path) -> None:
    loaded = load_backbone(f"hf:{tiny_vit(tmp_path)}", size=48)
    assert (loaded.preparation.size, loaded.backbone.out_features) == (48, 16)
    with pytest.raises(DsuiError, match=r"fails on images of 4 x 4 pixels .*; choose another --size"):
        load_backbone(f"hf:{tmp_path / 'vit'}", size=4)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"size": {"height": 32, "width": 48}}, "takes images that are not square"),
        ({"do_flip_channel_order": True}, "changes pixels in a way that dsui does not"),
    ],
)
def test_what_a_processor_does_and_dsui_does_not_is_told(
    settings: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(DsuiError, match=sentence):
        load_backbone(f"hf:{tiny_vit(tmp_path, **settings)}")


def test_a_folder_without_a_model_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DsuiError, match=r"cannot be loaded .*correct the name or the folder") as mistake:
        from_transformers(str(tmp_path), True)
    assert "\n" not in str(mistake.value)


def test_timm_gives_its_features_and_how_images_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool, int]] = []

    def make(name: str, pretrained: bool, num_classes: int) -> nn.Module:
        asked.append((name, pretrained, num_classes))
        return Counted()

    stand_in_timm(monkeypatch, make)
    loaded = load_backbone("timm:tiny")
    assert asked == [("tiny", True, 0)]
    assert torch.equal(loaded.backbone.eval()(IMAGES), Counted().eval()(IMAGES))
    found = loaded.preparation
    assert (found.size, found.edge, found.fit, found.interpolation) == (SIDE, 40, "crop", "bicubic")
    image = photograph((50, 43))
    wanted = image.resize((40, 46), Image.Resampling.BICUBIC).crop((4, 7, 36, 39))
    assert same_pixels(found.apply(image), wanted)


def test_timm_may_squash_and_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_timm(monkeypatch, lambda *_words, **_options: Counted(), crop_mode="squash")
    found, image = load_backbone("timm:tiny").preparation, photograph((90, 43))
    assert same_pixels(found.apply(image), image.resize((40, 40), Image.Resampling.BICUBIC).crop((4, 4, 36, 36)))


def test_the_centre_is_rounded_as_torchvision_and_timm_do() -> None:
    """Half a pixel goes to the even number: 45 - 32 is 13, so 6.5 is 6; 47 - 32 is 15, so 7.5 is 8."""
    for edge, first in ((45, 6), (47, 8)):
        image = photograph((edge, edge))
        cut = Preparation(size=32, edge=edge, interpolation="bicubic").apply(image)
        assert same_pixels(cut, image.crop((first, first, first + 32, first + 32)))


def test_torchvision_loses_its_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tiny(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.fc = Counted(), nn.Linear(6, 1000)

        def forward(self, images: Tensor) -> Tensor:
            found: Tensor = self.fc(self.body(images))
            return found

    stand_in_torchvision(monkeypatch, lambda _name, weights: Tiny())  # noqa: ARG005
    loaded = load_backbone("torchvision:tiny")
    assert torch.equal(loaded.backbone.eval()(IMAGES), Counted().eval()(IMAGES))
    assert (loaded.preparation.size, loaded.preparation.edge) == (SIDE, 40)
    with pytest.raises(DsuiError, match="torchvision:huge cannot be loaded"):
        load_backbone("torchvision:huge")
    stand_in_torchvision(monkeypatch, lambda _name, weights: Counted())  # noqa: ARG005
    with pytest.raises(DsuiError, match=r"the classifier of torchvision:tiny cannot be taken out .*; choose another"):
        load_backbone("torchvision:tiny")


class Harmful:
    """Unpickling it would leave a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_weights_that_a_library_unpickles_run_no_code(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"fc": Harmful(tmp_path / "harm")}, tmp_path / "weights.bin")

    def make(*_words: Any, **_options: Any) -> nn.Module:
        torch.load(tmp_path / "weights.bin", weights_only=False)
        return Counted()

    stand_in_timm(monkeypatch, make)
    stand_in_torchvision(monkeypatch, make)
    load = {"timm": from_timm, "torchvision": from_torchvision}[library]
    with pytest.raises(DsuiError, match="cannot be loaded"):
        load("tiny", True)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_library_that_is_missing_is_named_with_the_command_that_installs_it(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsui.backbones.spec.find_spec", lambda _name: None)
    with pytest.raises(
        DsuiError, match=rf"needs {library}, which is not installed; run pip install 'dsui\[{library}\]'"
    ):
        load_backbone(f"{library}:resnet18")
