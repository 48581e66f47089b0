"""A wrong bit anywhere in the weights is noticed, also where only the metadata is read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dsui.errors import RunError
from dsui.runs.weights import load_weights, read_metadata, save_weights


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_weights(path, {"b": torch.arange(5.0), "a": torch.tensor([[1, 2]])}, {"calibration": "0.12345"})
    return path


def header_size(path: Path) -> int:
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def test_the_checksums_are_those_of_their_definition(weights: Path) -> None:
    content, start = weights.read_bytes(), header_size(weights)
    header = json.loads(content[8:start])
    said = header["__metadata__"].pop("sha256_header")
    assert header["__metadata__"]["sha256"] == hashlib.sha256(content[start:]).hexdigest()
    assert said == hashlib.sha256(json.dumps(header, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    tensors = torch.tensor([[1, 2]]).numpy().tobytes() + torch.arange(5.0).numpy().tobytes()
    assert content[start:] == tensors, "in the order of the file"


@pytest.mark.parametrize("bit", [0, 5])
def test_no_wrong_bit_goes_unnoticed(weights: Path, bit: int) -> None:
    content, start = weights.read_bytes(), header_size(weights)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << bit
        weights.write_bytes(damaged)
        with pytest.raises(RunError):
            load_weights(weights)
        if position < start:
            with pytest.raises(RunError):
                read_metadata(weights)
    weights.write_bytes(content)
    assert load_weights(weights)[1] == read_metadata(weights)


def test_the_fault_is_told_in_one_sentence(weights: Path) -> None:
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + b"?")
    with pytest.raises(
        RunError, match=r"the tensors of .*safetensors are not as they were written; copy the file again"
    ):
        load_weights(weights)
    weights.write_bytes(content.replace(b"0.12345", b"0.92345"))
    for read in (load_weights, read_metadata):
        with pytest.raises(
            RunError, match=r"the header of .*safetensors is not as it was written; copy the file again"
        ):
            read(weights)


def test_weights_without_a_checksum_are_read(tmp_path: Path) -> None:
    save_file({"a": torch.ones(3)}, tmp_path / "older", {"schema": "1"})
    tensors, metadata = load_weights(tmp_path / "older")
    assert torch.equal(tensors["a"], torch.ones(3))
    assert metadata == {"schema": "1"}


def test_metadata_of_other_weights_give_no_checksum_to_these(weights: Path) -> None:
    _, metadata = load_weights(weights)
    save_weights(weights, {"c": torch.zeros(2)}, metadata)
    tensors, again = load_weights(weights)
    assert tensors.keys() == {"c"}
    assert again["sha256"] != metadata["sha256"]
