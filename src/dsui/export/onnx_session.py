"""A graph in ONNX Runtime, from its bytes, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

QUIET = 3
"""ONNX Runtime prints errors and no warnings."""


class Session:
    """Arrays to outputs by name; as many threads as PyTorch uses, so that speeds can be compared."""

    def __init__(self, content: bytes) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = QUIET
        options.intra_op_num_threads = torch.get_num_threads()
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.input = self._session.get_inputs()[0].name
        self.outputs = tuple(each.name for each in self._session.get_outputs())

    def __call__(self, inputs: NDArray[Any]) -> dict[str, NDArray[Any]]:
        found = self._session.run(self.outputs, {self.input: np.ascontiguousarray(inputs)})
        return dict(zip(self.outputs, found, strict=True))
