"""An ONNX file from outside, looked through before ONNX Runtime sees it.

The file is a tree of protobuf messages. A message is a row of fields: a key (number x 8 + kind) and a value, which for
the kind 2 is a length and as many bytes. This module follows the fields that can hold tensors and reads the metadata.
Tensors whose values lie in other files are refused. ONNX Runtime 1.31 reads such a file for a model that it is given as
bytes, also through "..", so a model from outside could name any file of the machine that it can guess.

Numbers of fields: onnx.proto of ONNX, github.com/onnx/onnx.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dsui.errors import ModelError
from dsui.regular_file import read_regular
from dsui.runtime.facts import CHECKS, KEY, ModelFacts

LARGEST_FILE = (1 << 31) - 1
"""Bytes; the most that a protobuf message may have."""
MOST_FIELDS = 1 << 20
"""A model of a thousand layers has about fifty thousand."""
DEEPEST = 32
"""Messages in messages; a graph in a node's attribute takes three."""
VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5
LARGEST_NUMBER = (1 << 29) - 1
"""Of a field. Protobuf drops the bits above, so that a larger number would be another field to ONNX Runtime."""
NO_MESSAGE = "its bytes are no protobuf message"
IR_VERSION, OPSETS, METADATA_PROPS = 1, 8, 14
WITH_TENSORS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
"""For each kind of message, the fields that hold messages with tensors in them, and of which kind these are."""
EXTERNAL_DATA, DATA_LOCATION = 13, 14
"""Fields of a tensor: where its values lie, and 1 where that is another file."""


class ModelFile(NamedTuple):
    """The bytes of a file that keeps the rules, what it says of itself, and the JSON that says it."""

    content: bytes
    facts: ModelFacts
    metadata: bytes
    checks: bytes | None
    """The JSON that says what the checks of the export measured."""
    operations: int
    versions: tuple[int, int]
    """Of ONNX's operators, and of its files."""


class _Field(NamedTuple):
    number: int
    integer: int
    """The value of the kind 0."""
    content: memoryview | None
    """That of the kind 2."""


def read_model(path: Path) -> ModelFile:
    """The file, or a ModelError that says in one sentence why it cannot be used."""
    try:
        content = read_regular(path, LARGEST_FILE)
    except FileNotFoundError as error:
        raise ModelError(f"there is no file {path}; export one with `dsui export RUN {path}`.") from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}); name a file that `dsui export` wrote.") from error
    try:
        reader = _Reader(memoryview(content))
    except ValueError as error:
        raise ModelError(f"{path} is no ONNX file that can be used ({error}); export it again.") from error
    found = reader.metadata.get(KEY.encode())
    if found is None:
        raise ModelError(f"{path} does not say what it predicts; name a file that `dsui export` wrote.")
    try:
        facts = ModelFacts.from_text(found)
    except ValueError as error:
        raise ModelError(f"the metadata of {path} cannot be used: {error}; export it again.") from error
    checks = reader.metadata.get(CHECKS.encode())
    return ModelFile(content, facts, found, checks, reader.operations, (reader.opset, reader.ir))


class _Reader:
    def __init__(self, model: memoryview) -> None:
        self.fields = self.operations = self.opset = self.ir = 0
        self.metadata: dict[bytes, bytes] = {}
        if not model:
            raise ValueError("it is empty")
        for field in self._read(model):
            if field.content is None:
                self.ir = field.integer if field.number == IR_VERSION else self.ir
            elif field.number == METADATA_PROPS:
                key, value = self._entry(field.content)
                self.metadata[key] = value
            elif field.number == OPSETS:
                self.opset = max([self.opset, *(each.integer for each in self._read(field.content))])
            elif (kind := WITH_TENSORS["model"].get(field.number)) is not None:
                self._look_through(field.content, kind, 1)

    def _entry(self, message: memoryview) -> tuple[bytes, bytes]:
        """A key and its value."""
        texts = {each.number: bytes(each.content) for each in self._read(message) if each.content is not None}
        return texts.get(1, b""), texts.get(2, b"")

    def _look_through(self, message: memoryview, kind: str, depth: int) -> None:
        """Raise if a tensor in the message has its values in another file."""
        if depth > DEEPEST:
            raise ValueError("its graphs nest too deep")
        for field in self._read(message):
            if kind == "tensor":
                if field.number == EXTERNAL_DATA or (field.number == DATA_LOCATION and field.integer):
                    raise ValueError("it has values in other files, which are never read")
            elif field.content is not None and (inner := WITH_TENSORS[kind].get(field.number)) is not None:
                self.operations += inner == "node"
                self._look_through(field.content, inner, depth + 1)

    def _read(self, message: memoryview) -> Iterator[_Field]:
        at = 0
        while at < len(message):
            self.fields += 1
            if self.fields > MOST_FIELDS:
                raise ValueError(f"it holds more than {MOST_FIELDS:,} parts")
            key, at = _varint(message, at)
            number, kind = key >> 3, key & 7
            if not 1 <= number <= LARGEST_NUMBER:
                raise ValueError(NO_MESSAGE)
            integer, content = 0, None
            if kind == VARINT:
                integer, at = _varint(message, at)
            elif kind in {FIXED_32, FIXED_64}:
                at += 4 if kind == FIXED_32 else 8
            elif kind == BYTES:
                length, at = _varint(message, at)
                content, at = message[at : at + length], at + length
            else:
                raise ValueError(NO_MESSAGE)
            if at > len(message):
                raise ValueError("it is cut off, or its bytes are no protobuf message")
            yield _Field(number, integer, content)


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; and where it ends."""
    value = 0
    for place in range(10):
        if at + place >= len(message):
            raise ValueError("it is cut off")
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError(NO_MESSAGE)
