"""A part of an ONNX graph in float16: weights take half the space, and values are cast where they enter and leave it.

ONNX Runtime's own converter gives casts of one value the same name where it is told to leave nodes as they are.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

HALF = "/half"
"""Ends the name of a value in float16."""
LARGEST = float(np.finfo(np.float16).max)
FLOAT32_ONLY = ("Resize",)
"""Operations whose float inputs may be settings that ONNX wants in float32."""


def halved(model: ModelProto, chosen: Collection[str]) -> ModelProto:
    """A copy of `model` with the nodes named in `chosen` in float16; a ValueError where one of them holds a graph."""
    from onnx import ModelProto

    result = ModelProto()
    result.CopyFrom(model)
    _Halving(result.graph, _float_values(model), chosen).run()
    return result


class _Halving:
    """`floats` are the names of values in float32."""

    def __init__(self, graph: GraphProto, floats: set[str], chosen: Collection[str]) -> None:
        self.graph, self.floats, self.chosen = graph, floats, frozenset(chosen)
        self.weights = {each.name: each for each in graph.initializer}
        self.halves = dict[str, str]()
        self.of_network = set[str]()
        self.nodes: list[NodeProto] = []

    def run(self) -> None:
        for node in list(self.graph.node):
            if node.name in self.chosen and node.op_type not in FLOAT32_ONLY:
                self._halve(node)
            else:
                self._restore(node.input)
            self.nodes.append(node)
        self._restore([each.name for each in self.graph.output])
        self.graph.ClearField("node")
        self.graph.node.extend(self.nodes)
        self.graph.ClearField("value_info")
        used = {name for node in self.nodes for name in node.input}
        kept = [each for each in self.graph.initializer if each.name in used]
        self.graph.ClearField("initializer")
        self.graph.initializer.extend(kept)

    def _halve(self, node: NodeProto) -> None:
        from onnx import TensorProto, numpy_helper

        for attribute in node.attribute:
            if attribute.HasField("g"):
                raise ValueError(f"its {node.op_type} holds a graph of its own")
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
            if attribute.HasField("t") and attribute.t.data_type == TensorProto.FLOAT:
                attribute.t.CopyFrom(numpy_helper.from_array(_clipped(numpy_helper.to_array(attribute.t))))
        node.input[:] = [self._half(name) if name in self.floats else name for name in node.input]
        for place, name in enumerate(node.output):
            if name in self.floats:
                node.output[place] = self.halves[name] = name + HALF
                self.of_network.add(name)

    def _half(self, name: str) -> str:
        """The name of a value in float16: of weights, of what the network computed, or of a new cast."""
        from onnx import TensorProto, helper, numpy_helper

        if name not in self.halves:
            self.halves[name] = name + HALF
            if name in self.weights:
                values = _clipped(numpy_helper.to_array(self.weights[name]))
                self.graph.initializer.append(numpy_helper.from_array(values, name + HALF))
            else:
                self.nodes.append(
                    helper.make_node("Cast", [name], [name + HALF], f"{name}/to_half", to=TensorProto.FLOAT16)
                )
        return self.halves[name]

    def _restore(self, names: Collection[str]) -> None:
        """Cast what the network computed back to float32, once, under its old name."""
        from onnx import TensorProto, helper

        for name in sorted(self.of_network.intersection(names)):
            self.nodes.append(helper.make_node("Cast", [name + HALF], [name], f"{name}/to_float", to=TensorProto.FLOAT))
            self.of_network.discard(name)


def _float_values(model: ModelProto) -> set[str]:
    """The names of all values in float32."""
    from onnx import TensorProto, shape_inference

    graph = shape_inference.infer_shapes(model).graph
    typed = (*graph.input, *graph.output, *graph.value_info)
    found = {each.name for each in typed if each.type.tensor_type.elem_type == TensorProto.FLOAT}
    return found | {each.name for each in graph.initializer if each.data_type == TensorProto.FLOAT}


def _clipped(values: NDArray[Any]) -> NDArray[np.float16]:
    clipped: NDArray[np.float16] = np.clip(values, -LARGEST, LARGEST).astype(np.float16)
    return clipped
