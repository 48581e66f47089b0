from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dsui.errors import RunError
from dsui.runs.weights import load_weights, save_weights


def refuses(path: Path) -> str:
    with pytest.raises(RunError) as caught:
        load_weights(path)
    sentence = str(caught.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    return sentence


def test_weights_and_metadata_come_back_to_the_bit(tmp_path: Path) -> None:
    tensors = {
        "float": torch.randn(3, 4, requires_grad=True),
        "half": torch.randn(5).bfloat16(),
        "count": torch.tensor(7),
        "mask": torch.tensor([True, False]),
        "empty": torch.empty(0, 3),
    }
    save_weights(tmp_path / "model.safetensors", tensors, {"calibration": "{}"})
    back, metadata = load_weights(tmp_path / "model.safetensors")
    assert metadata.items() >= {"calibration": "{}", "schema": "1"}.items()
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensor) and back[name].dtype == tensor.dtype for name, tensor in tensors.items())
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_tied_sliced_and_reordered_tensors_are_saved(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(2, 3, 2, 2)
    tensors = {
        "a": base,
        "tied": base,
        "part": base[1:],
        "turned": base.transpose(0, 1),
        "channels_last": base.to(memory_format=torch.channels_last),
        "expanded": base[:1, :1, :1, :1].expand(2, 2, 2, 2),
    }
    save_weights(tmp_path / "model.safetensors", tensors, {})
    back, _ = load_weights(tmp_path / "model.safetensors")
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())


def test_loaded_weights_outlive_a_newer_file_in_their_place(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_weights(path, {"a": torch.ones(100_000)}, {})
    back, _ = load_weights(path)
    save_weights(path, {"a": torch.zeros(100_000)}, {})
    assert torch.equal(back["a"], torch.ones(100_000))


def test_each_unusable_file_is_named_with_its_fault(tmp_path: Path) -> None:
    whole, cut, text, folder = (tmp_path / name for name in ("whole", "cut", "text", "folder"))
    save_weights(whole, {"a": torch.ones(1000)}, {})
    cut.write_bytes(whole.read_bytes()[:-100])
    text.write_text("these are no weights at all")
    folder.mkdir()
    assert "is missing" in refuses(tmp_path / "absent")
    assert "not fully covered" in refuses(cut)
    assert "not a safetensors file" in refuses(text)
    assert "cannot be read" in refuses(folder)


@pytest.mark.parametrize("size", [0, 4, 12, 60])
def test_weights_cut_off_in_their_header_are_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "model.safetensors"
    save_weights(path, {"a": torch.ones(1000)}, {})
    path.write_bytes(path.read_bytes()[:size])
    assert "cut off" in refuses(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"schema": "one"}])
def test_weights_of_another_program_are_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file({"a": torch.ones(3)}, tmp_path / "foreign", metadata)
    assert "not written by dsui" in refuses(tmp_path / "foreign")


def test_weights_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(3)}, tmp_path / "newer", {"schema": "2"})
    assert "written by a newer dsui (schema 2, this one knows 1); update dsui" in refuses(tmp_path / "newer")


def test_the_same_weights_are_the_same_bytes(tmp_path: Path) -> None:
    facts = {f"key {number}": "é" * number for number in range(20)}
    tensors = {"b": torch.arange(5.0), "a": torch.ones(3, dtype=torch.int64)}
    for name in ("first", "second"):
        save_weights(tmp_path / name, tensors, facts)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    back, metadata = load_weights(tmp_path / "first")
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)
    assert facts.items() <= metadata.items()
