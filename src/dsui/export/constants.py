"""What a traced program computes without its input, computed once by PyTorch and stored in the program as values.

ONNX has no Cholesky factor, no triangular solve and no Bessel function. What the densities of a run need of them
depends on its parameters alone, so the graph gets the values instead.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Node, map_arg

PREFIX = "computed_"


@torch.no_grad()
def store_constants(program: ExportedProgram) -> None:
    """In place: what depends on no input and is read by what does becomes a value of the program."""
    values = _known(program)
    for node in program.graph.nodes:
        if node.op == "call_function" and _computable(node) and all(each in values for each in node.all_input_nodes):
            values[node] = node.target(*map_arg(node.args, values.get), **map_arg(node.kwargs, values.get))
    computed = [node for node in values if node.op == "call_function"]
    for node in computed:
        if isinstance(values[node], Tensor) and any(user not in values for user in node.users):
            _store(program, node, values[node])
    for node in reversed(computed):
        if not node.users:
            program.graph.erase_node(node)
    program.graph_module.recompile()


def _known(program: ExportedProgram) -> dict[Node, Any]:
    """The parameters and buffers."""
    stored = {**program.state_dict, **program.constants}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    return {
        node: stored[specs[node.name].target]
        for node in program.graph.nodes
        if node.op == "placeholder" and specs[node.name].kind is not InputKind.USER_INPUT
    }


def _computable(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem


def _store(program: ExportedProgram, node: Node, value: Tensor) -> None:
    """As the first input of the program, which are in the order of its signature."""
    name = PREFIX + node.name
    with program.graph.inserting_before(next(iter(program.graph.nodes))):
        stored = program.graph.placeholder(name)
    stored.meta["val"] = node.meta["val"]
    program.graph_signature.input_specs.insert(
        0, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(stored.name), name, None)
    )
    program.constants[name] = value.contiguous()
    node.replace_all_uses_with(stored)
