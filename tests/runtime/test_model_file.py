"""ONNX files from outside: what keeps the rules is read, everything else is one sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dsui.errors import ModelError
from dsui.runtime import model_file
from dsui.runtime.facts import ModelFacts
from dsui.runtime.model_file import read_model
from dsui.runtime.session import Session
from tests.support.onnx_model import write_onnx_model

Change = Callable[[onnx.ModelProto], object]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_onnx_model(tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def refused(path: Path, opened: Callable[[Path], object] = Session) -> str:
    with pytest.raises(ModelError) as refusal:
        opened(path)
    sentence = str(refusal.value)
    assert sentence.count("\n") == 0
    assert "ONNXRuntimeError" not in sentence
    return sentence


def external(location: str = "secret.bin") -> TensorProto:
    """A tensor whose values are those of another file."""
    tensor = TensorProto(name="weight", data_type=TensorProto.FLOAT, dims=[3, 3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def in_a_graph() -> onnx.GraphProto:
    return helper.make_graph([], "inner", [], [], [external()])


def first_node(model: onnx.ModelProto) -> onnx.NodeProto:
    node: onnx.NodeProto = model.graph.node[0]
    return node


HIDDEN: dict[str, Change] = {
    "weights": lambda model: model.graph.initializer.append(external()),
    "a constant": lambda model: first_node(model).attribute.append(helper.make_attribute("value", external())),
    "a list of constants": lambda model: first_node(model).attribute.append(helper.make_attribute("all", [external()])),
    "the branch of a condition": lambda model: first_node(model).attribute.append(
        helper.make_attribute("then_branch", in_a_graph())
    ),
    "sparse weights": lambda model: model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=external())),
    "a sparse constant": lambda model: first_node(model).attribute.append(
        onnx.AttributeProto(
            name="sparse_value",
            type=onnx.AttributeProto.SPARSE_TENSOR,
            sparse_tensor=onnx.SparseTensorProto(values=external()),
        )
    ),
    "a function": lambda model: model.functions.append(
        helper.make_function(
            "own", "f", [], ["y"], [helper.make_node("Constant", [], ["y"], value=external())], model.opset_import
        )
    ),
    "training": lambda model: model.training_info.add().initialization.CopyFrom(in_a_graph()),
    "no location but other files": lambda model: model.graph.initializer[0].external_data.add(key="offset", value="0"),
}


@pytest.mark.parametrize("where", HIDDEN)
def test_values_in_other_files_are_refused_wherever_they_hide(model: Path, where: str) -> None:
    loaded = onnx.load_model_from_string(model.read_bytes())
    HIDDEN[where](loaded)
    model.write_bytes(loaded.SerializeToString())
    assert refused(model, read_model).endswith(
        "is no ONNX file that can be used (it has values in other files, which are never read); export it again."
    )


def test_another_file_would_otherwise_be_read(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, ONNX Runtime has learned to refuse it, and the reason in model_file.py should say so."""
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    (tmp_path / "secret.bin").write_bytes(np.zeros(9, np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    loaded = onnx.load_model_from_string(model.read_bytes())
    weight = next(each for each in loaded.graph.initializer if each.name == "weight")
    weight.CopyFrom(external())
    onnxruntime.InferenceSession(loaded.SerializeToString(), providers=["CPUExecutionProvider"])


def test_a_field_number_that_protobuf_would_shorten_is_refused(model: Path) -> None:
    """Protobuf keeps 32 bits of a key: with bit 33 set, the graph is still the graph to it."""
    content, graph_key = model.read_bytes(), (1 << 32) | (7 << 3) | 2
    key = bytes([(graph_key >> shift) & 0x7F | (0x80 if shift < 28 else 0) for shift in range(0, 35, 7)])
    model.write_bytes(content + key + b"\x00")
    assert "its bytes are no protobuf message" in refused(model)


def test_every_beginning_of_a_file_is_refused_with_a_sentence(model: Path, tmp_path: Path) -> None:
    whole, part = model.read_bytes(), tmp_path / "part.onnx"
    for length in range(0, len(whole), 17):
        part.write_bytes(whole[:length])
        assert refused(part).startswith(f"{part} ")


def test_bytes_that_are_changed_at_random_never_raise_anything_else(model: Path) -> None:
    whole, generator = model.read_bytes(), np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(whole)
        for place in generator.integers(0, len(whole), 3):
            changed[place] = generator.integers(0, 256)
        model.write_bytes(changed)
        try:
            Session(model).run(np.zeros((2, 8, 8, 3), np.uint8))
        except ModelError as error:
            assert str(error).count("\n") == 0  # noqa: PT017 - most changes are refused, and some do not matter


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"PK\x03\x04 a zip file, as a checkpoint is", "its bytes are no protobuf message"),
        (b"\x3a\xff\xff\xff\xff\x07", "it is cut off"),
        (b"\x08\x00" * 101, "it holds more than 100 parts"),
    ],
)
def test_what_is_no_model_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, reason: str) -> None:
    monkeypatch.setattr(model_file, "MOST_FIELDS", 100)
    (tmp_path / "a.onnx").write_bytes(content)
    assert reason in refused(tmp_path / "a.onnx")


def test_graphs_that_nest_without_end_are_refused(tmp_path: Path) -> None:
    message = b""
    for _ in range(40):
        for key in (0x32, 0x2A, 0x0A):  # a graph in an attribute in a node in a graph
            length = len(message)
            size = bytes([length & 0x7F | 0x80, length >> 7]) if length > 127 else bytes([length])
            message = bytes([key]) + size + message
    size = bytes([len(message) & 0x7F | 0x80, len(message) >> 7])
    (tmp_path / "deep.onnx").write_bytes(b"\x3a" + size + message)
    assert "its graphs nest too deep" in refused(tmp_path / "deep.onnx")


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    (tmp_path / "huge.onnx").touch()
    os.truncate(tmp_path / "huge.onnx", 1 << 31)
    for name, reason in {
        "absent.onnx": "there is no file",
        "": "Is a directory",
        "pipe.onnx": "it is a pipe and not a file",
        "huge.onnx": "it holds 2,147,483,648 bytes, more than the 2,147,483,647 it may hold",
    }.items():
        assert reason in refused(tmp_path / name)


def test_a_model_of_somebody_else_is_told(model: Path) -> None:
    loaded = onnx.load_model_from_string(model.read_bytes())
    del loaded.metadata_props[:]
    model.write_bytes(loaded.SerializeToString())
    assert refused(model) == f"{model} does not say what it predicts; name a file that `dsui export` wrote."


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 2}, "it has the format 2, and this dsui reads 1"),
        ({"format": "1"}, "format is '1'; it must be 1"),
        ({"classes": ["cat"]}, "classes is ['cat']; it must be a list of 2 to 65,536 values"),
        ({"classes": ["cat", "dog", None]}, "classes[2] is None; it must be text"),
        ({"size": None}, "it takes images of size None with 3 channels"),
        ({"size": 1 << 20}, "size is 1048576; it must be a whole number from 1 to 8,192 or null"),
        ({"channels": 4}, "with 4 channels, which none have"),
        ({"outputs": ["label", "probabilities", "accepted"]}, "it lists no output uncertainty"),
        ({"outputs": ["label", "probabilities", "uncertainty"]}, "it lists no output accepted"),
        ({"precision": "fp8"}, "precision is 'fp8'; it must be one of fp32, fp16, int8"),
        ({"thresholds": {"limits": []}}, "thresholds is {'limits': []}; it must be a mapping or null"),
        ({"calibration": {"images": 300, "errors": 1, "uncertainty": [0.5]}}, "calibration is"),
        (
            {"preparation": {"edge": 4, "fit": "crop", "interpolation": "bilinear", "rounds_down": False}},
            "it cuts images of 8 pixels out of 4",
        ),
        ({"preparation": {"edge": 9, "fit": "crop", "interpolation": "own", "rounds_down": False}}, "preparation is"),
    ],
)
def test_metadata_that_break_the_contract_are_told(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    write_onnx_model(tmp_path / "a.onnx", changes=changes)
    sentence = refused(tmp_path / "a.onnx")
    assert sentence.startswith(f"the metadata of {tmp_path / 'a.onnx'} cannot be used: ")
    assert reason in sentence


def test_metadata_that_are_no_json_are_told(model: Path) -> None:
    loaded = onnx.load_model_from_string(model.read_bytes())
    for text in ("{", "[" * 100_000, '{"format": 1, "name": "\\ud800"}', "[]"):
        helper.set_model_props(loaded, {"dsui": text})
        model.write_bytes(loaded.SerializeToString())
        assert refused(model).startswith(f"the metadata of {model} cannot be used: ")


def test_keys_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    metadata = write_onnx_model(tmp_path / "a.onnx", changes={"licence": "own"})
    assert read_model(tmp_path / "a.onnx").facts == ModelFacts.from_text(json.dumps(metadata))


@pytest.mark.parametrize(
    ("made", "changes", "reason"),
    [
        (
            {"channels": 1},
            {"channels": 3},
            "does not take one input images of the type tensor(uint8) [N, H, W, C] with 3",
        ),
        ({}, {"input": "features"}, "does not take one input features of the type tensor(float) [N, M] with 3"),
        (
            {"density": False},
            {"outputs": ["label", "probabilities", "uncertainty", "accepted", "energy"]},
            "no output 'en",
        ),
        ({}, {"classes": ["cat", "dog"]}, "gives 'probabilities' of the shape [2, 3] where [2, 2] is due"),
    ],
)
def test_a_graph_that_is_not_what_its_metadata_say_is_told(
    tmp_path: Path, made: dict[str, Any], changes: dict[str, object], reason: str
) -> None:
    write_onnx_model(tmp_path / "a.onnx", **made, changes=changes)
    assert reason in refused(tmp_path / "a.onnx", lambda path: Session(path).run(np.zeros((2, 8, 8, 3), np.uint8)))


def test_operators_that_onnx_runtime_lacks_are_told(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    loaded = onnx.load_model_from_string(model.read_bytes())
    loaded.opset_import.append(helper.make_opsetid("own", 1))
    first_node(loaded).domain = "own"
    model.write_bytes(loaded.SerializeToString())
    assert "is not a registered function/op" in refused(model)
    assert capfd.readouterr().err == ""  # nor does its log reach the terminal


def test_a_graph_that_fails_while_it_runs_is_told(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    loaded = onnx.load_model_from_string(model.read_bytes())
    pixels = next(each for each in loaded.graph.initializer if each.name == "pixels")
    loaded.graph.initializer.remove(pixels)
    loaded.graph.node.insert(0, helper.make_node("Shape", ["images"], ["pixels"]))  # axes that no image has
    model.write_bytes(loaded.SerializeToString())
    assert "fails on its input" in refused(model, lambda path: Session(path).run(np.zeros((9, 8, 8, 3), np.uint8)))
    assert capfd.readouterr().err == ""


def test_labels_of_no_class_are_told(tmp_path: Path) -> None:
    write_onnx_model(tmp_path / "a.onnx")
    loaded = onnx.load(str(tmp_path / "a.onnx"))
    index = next(each for each in loaded.graph.node if each.op_type == "ArgMax")
    index.output[0] = "zero_based"
    loaded.graph.initializer.append(helper.make_tensor("seven", TensorProto.INT64, [], [7]))
    loaded.graph.node.append(helper.make_node("Add", ["zero_based", "seven"], ["label"]))
    (tmp_path / "a.onnx").write_bytes(loaded.SerializeToString())
    run = lambda path: Session(path).run(np.zeros((2, 8, 8, 3), np.uint8))  # noqa: E731
    assert "gives labels of none of its 3 classes" in refused(tmp_path / "a.onnx", run)
