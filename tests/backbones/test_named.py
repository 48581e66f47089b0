"""Specs of backbones: what they name, whose code runs, and weights from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dsui.backbones import spec as specs
from dsui.backbones.named import load_backbone, put, read_weights, weights_fingerprint
from dsui.errors import DsuiError
from tests.support.tiny_networks import SIDE, Counted, own_module, tiny_vit

IMAGES = torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of one's own in the working folder, whose name begins specs; nothing is allowed yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(specs, "_allowed", {})
    monkeypatch.syspath_prepend(str(tmp_path))
    return own_module(tmp_path)


def test_a_function_runs_only_if_the_user_named_it(own: str, tmp_path: Path) -> None:
    (tmp_path / f"{own}.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(DsuiError, match=f"is code outside dsui, which runs only if .* add --backbone {own}:net"):
        load_backbone(f"{own}:net")


def test_a_function_of_ones_own_says_how_its_images_are_made(own: str) -> None:
    specs.allow(f"{own}:net")
    loaded = load_backbone(f"{own}:net")
    assert (loaded.preparation.size, loaded.backbone.out_features) == (24, 32)
    assert load_backbone(f"{own}:net", size=30).preparation.size == 30
    assert specs.named_function() == f"{own}:net"


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("soft", "Soft gives probabilities, which sum to one, and not features"),
        ("text", "returns str; return a torch.nn.Module"),
        ("nothing", "has no function nothing"),
        ("boom", r"boom fails \(RuntimeError: no weights here; line \d+ of .*own_networks_\d+\.py\)"),
        ("needs", r"needs fails \(TypeError: .* argument"),
    ],
)
def test_what_a_function_gives_that_is_no_network_is_told(own: str, function: str, sentence: str) -> None:
    specs.allow(f"{own}:{function}")
    with pytest.raises((DsuiError, ValueError), match=sentence):
        load_backbone(f"{own}:{function}")


def test_a_module_with_an_error_in_it_is_told(own: str, tmp_path: Path) -> None:
    (tmp_path / f"{own}.py").write_text("1 / 0")
    specs.allow(f"{own}:net")
    with pytest.raises(DsuiError, match=rf"{own} cannot be imported \(ZeroDivisionError: division by zero; line 1 of"):
        load_backbone(f"{own}:net")


@pytest.mark.parametrize(
    ("stated", "sentence"),
    [
        ({"men": [0.5] * 3}, "must be a mapping with no keys but edge, fit, interpolation, .*, size, mean, std"),
        ({"size": "24"}, "preparation.size is '24'; it must be a whole number"),
        ({"interpolation": "cubic"}, "preparation.interpolation is 'cubic'; it must be"),
        ({"mean": [0.4]}, "preparation.mean is"),
        ({"std": [0, 0, 0]}, "preparation.std.* is 0; it must be a number from 1e-06"),
        ({"size": 24, "edge": 20}, "preparation.edge is 20, smaller than its size 24"),
    ],
)
def test_what_a_function_states_wrongly_of_its_images_is_told(
    own: str, tmp_path: Path, stated: dict[str, Any], sentence: str
) -> None:
    with (tmp_path / f"{own}.py").open("a") as file:
        file.write(f"Net.preparation = {stated}\n")
    specs.allow(f"{own}:net")
    with pytest.raises(DsuiError, match=sentence):
        load_backbone(f"{own}:net")


def test_another_size_keeps_the_share_that_a_function_cuts_off(own: str, tmp_path: Path) -> None:
    with (tmp_path / f"{own}.py").open("a") as file:
        file.write("Net.preparation = {'size': 24, 'edge': 30}\n")
    specs.allow(f"{own}:net")
    assert load_backbone(f"{own}:net", size=48).preparation.edge == 60


def test_as_many_outputs_as_the_data_has_classes_are_no_features(own: str) -> None:
    specs.allow(f"{own}:votes")
    assert load_backbone(f"{own}:votes", classes=4).backbone.out_features == 3
    with pytest.raises(ValueError, match="Votes gives 3 outputs, as many as the data has classes, and not features"):
        load_backbone(f"{own}:votes", classes=3)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            "resnet18",
            "'resnet18' is no backbone; write timm:NAME, torchvision:NAME, hf:NAME or package.module:function",
        ),
        ("hf:", "hf: names no model; write one behind the colon"),
        ("os.system('x'):y", "is no backbone; write"),
    ],
)
def test_other_words_are_no_spec(spec: str, sentence: str) -> None:
    with pytest.raises(DsuiError) as mistake:
        load_backbone(spec)
    assert sentence in str(mistake.value)


def test_a_module_that_is_nowhere_is_told(own: str) -> None:
    specs.allow(f"{own}_missing:net")
    with pytest.raises(DsuiError, match=f"{own}_missing cannot be imported"):
        load_backbone(f"{own}_missing:net")


def changed(folder: Path, tensors: dict[str, Tensor]) -> Path:
    save_file(tensors, folder / "mine.safetensors")
    return folder / "mine.safetensors"


def test_weights_of_a_file_replace_those_of_the_library(tmp_path: Path) -> None:
    vit = tiny_vit(tmp_path)
    plain = load_backbone(f"hf:{vit}").backbone.eval()
    tensors = load_file(vit / "model.safetensors")
    doubled = {name: 2 * each if name.startswith("layernorm") else each for name, each in tensors.items()}
    more = {"classifier.weight": torch.zeros(5, 16)}  # what a network with its classifier has beyond it
    for prefix in ("", "vit."):
        file = changed(tmp_path, {f"{prefix}{name}": each for name, each in doubled.items()} | more)
        loaded = load_backbone(f"hf:{vit}", file).backbone.eval()
        assert not torch.allclose(loaded(IMAGES), plain(IMAGES), rtol=0.1)
        assert weights_fingerprint(loaded) != weights_fingerprint(plain)
    same = load_backbone(f"hf:{vit}", changed(tmp_path, tensors)).backbone.eval()
    assert torch.equal(same(IMAGES), plain(IMAGES))
    assert weights_fingerprint(same) == weights_fingerprint(plain)


def test_without_weights_of_a_pooling_layer_the_first_token_is_read(tmp_path: Path) -> None:
    from transformers import ViTModel

    vit = tiny_vit(tmp_path)
    tensors = load_file(vit / "model.safetensors")
    file = changed(tmp_path, {name: each for name, each in tensors.items() if "pooler" not in name})
    loaded = load_backbone(f"hf:{vit}", file)
    model = ViTModel.from_pretrained(vit).eval()
    with torch.no_grad():
        assert torch.equal(loaded.backbone.eval()(IMAGES), model(IMAGES).last_hidden_state[:, 0])
    assert loaded.preparation.readout == "token"


def wrong_weights(folder: Path) -> dict[str, Any]:
    """Files by what is wrong with them."""
    tensors = load_file(tiny_vit(folder) / "model.safetensors")
    lacking = {name: each for name, each in tensors.items() if "layers.1" not in name and "layer.1" not in name}
    name = next(name for name in tensors if name.endswith("layernorm.weight"))
    save_file(lacking, folder / "lacking.safetensors")
    save_file({**tensors, name: torch.ones(3)}, folder / "wide.safetensors")
    torch.save(tensors, folder / "pickle.pth")
    torch.save(tensors, folder / "disguised.safetensors")
    (folder / "short.safetensors").write_bytes((folder / "wide.safetensors").read_bytes()[:-9])
    return {
        "lacking.safetensors": r"are not those of hf:.* \(they lack \d+ of its \d+ tensors",
        "wide.safetensors": r"has the shape \[3\] there and \[16\] here",
        "pickle.pth": "is a pickle by its name, which can run any code when it is opened; convert it to safetensors",
        "disguised.safetensors": "is no whole safetensors file",
        "short.safetensors": "is no whole safetensors file",
        "missing.safetensors": "cannot be read",
    }


def test_weights_that_do_not_fit_are_told_in_a_sentence(tmp_path: Path) -> None:
    for file, sentence in wrong_weights(tmp_path).items():
        with pytest.raises(DsuiError, match=sentence) as mistake:
            load_backbone(f"hf:{tmp_path / 'vit'}", tmp_path / file)
        assert "\n" not in str(mistake.value)
        assert str(mistake.value).endswith(".")


def test_weights_without_the_counters_of_batch_norm_are_whole(tmp_path: Path) -> None:
    tensors = {name: 2 * each for name, each in Counted().state_dict().items() if "num_batches_tracked" not in name}
    model = Counted()
    put(model, read_weights(changed(tmp_path, tensors)), tmp_path / "mine.safetensors", "timm:tiny")
    assert torch.equal(model.norm.weight, torch.full((4,), 2.0))
