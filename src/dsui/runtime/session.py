"""ONNX Runtime, with its errors as sentences and arrays checked on both sides.

A graph cannot run code of its own: no library of further operators is ever registered, so ONNX Runtime refuses a file
with operators that it does not have itself. A graph can take much time and memory; that is not limited here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsui.errors import DsuiError, ModelError
from dsui.excerpt import excerpt, shorten
from dsui.runtime.model_file import read_model

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

FATAL = 4
"""ONNX Runtime prints nothing below this on stderr; its errors come as exceptions."""
PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
NO_MEMORY = re.compile(r"bad_alloc|allocat|out of memory", re.IGNORECASE)
KINDS = {"label": "tensor(int64)", "accepted": "tensor(bool)"}
"""Types of outputs; all others are FLOAT."""
FLOAT, BYTE = "tensor(float)", "tensor(uint8)"


class Session:
    """An opened file: arrays in, checked arrays out. Threads may share it."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        """`threads` None: one for each processor."""
        file = read_model(path)
        self.path, self.facts = path, file.facts
        self._session = _open(path, file.content, threads)
        self._check_input()
        self._check_outputs()

    def run(self, inputs: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Every output by name, [N] or [N, C], of inputs whose shape was checked."""
        names, facts = list(self.facts.outputs), self.facts
        try:
            found = self._session.run(names, {facts.input: np.ascontiguousarray(inputs)})
        except Exception as error:  # ONNX Runtime's own have no common base
            if isinstance(error, MemoryError) or NO_MEMORY.search(str(error)):
                raise DsuiError(f"a batch of {len(inputs):,} needs too much memory; choose a smaller one.") from error
            raise ModelError(f"{self.path} fails on its input ({_reason(error)}); export it again.") from error
        outputs = dict(zip(names, found, strict=True))
        for name, values in outputs.items():
            wanted = (len(inputs), len(facts.classes)) if name == "probabilities" else (len(inputs),)
            if values.shape != wanted:
                raise ModelError(
                    f"{self.path} gives {excerpt(name)} of the shape {list(values.shape)} where {list(wanted)} is due; "
                    "export it again."
                )
        label = outputs["label"]
        if len(label) and not 0 <= label.min() <= label.max() < len(facts.classes):
            raise ModelError(f"{self.path} gives labels of none of its {len(facts.classes)} classes; export it again.")
        return outputs

    def _check_input(self) -> None:
        facts, found = self.facts, self._session.get_inputs()
        kind, rank, shape = (BYTE, 4, "[N, H, W, C]") if facts.input == "images" else (FLOAT, 2, "[N, M]")
        taken = [(each.name, each.type, len(each.shape), each.shape[-1:]) for each in found]
        if taken != [(facts.input, kind, rank, [facts.channels])]:
            raise ModelError(
                f"{self.path} does not take one input {facts.input} of the type {kind} {shape} with {facts.channels} "
                "as its last size, although its metadata say so; export it again."
            )

    def _check_outputs(self) -> None:
        found: Mapping[str, str] = {each.name: each.type for each in self._session.get_outputs()}
        for name in self.facts.outputs:
            wanted = KINDS.get(name, FLOAT)
            if found.get(name) != wanted:
                raise ModelError(
                    f"{self.path} has no output {excerpt(name)} of the type {wanted}, although its metadata say so; "
                    "export it again."
                )


def _open(path: Path, content: bytes, threads: int | None) -> InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = FATAL
    options.intra_op_num_threads = threads or 0
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the processors are needed to decode
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own have no common base
        raise ModelError(
            f"{path} cannot be opened by ONNX Runtime {onnxruntime.__version__} ({_reason(error)}); export it again, "
            "or install a newer onnxruntime."
        ) from error


def _reason(error: Exception) -> str:
    return shorten(PREFIX.sub("", str(error))).rstrip(". ")
