"""A module as an ONNX graph, by torch.export, with everything that does not depend on the input computed beforehand.

What the densities need of means and variances is therefore a constant of the graph: one product for all mixtures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dsui.errors import DsuiError
from dsui.excerpt import shorten
from dsui.export.decision_graph import DecisionGraph
from dsui.export.gamma_functions import digamma, lgamma
from dsui.export.preparation_graph import IR_VERSION, OPSET
from dsui.export.silence import without_remarks
from dsui.export.small_matrices import cholesky_ex, solve_triangular

if TYPE_CHECKING:
    from onnx import ModelProto

NETWORK = re.compile(r"(^|\.)(network|embedding)(\.|$)")
"""The names of the modules between pixels and the last layer."""
OWN: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.digamma.default: digamma,
    torch.ops.aten.lgamma.default: lgamma,
    torch.ops.aten.linalg_cholesky_ex.default: cholesky_ex,
    torch.ops.aten.linalg_solve_triangular.default: solve_triangular,
}
"""Operations that ONNX lacks, written in others."""
SCOPES = "pkg.torch.onnx.name_scopes"
BATCH = 3
"""Images of the example; neither 1, which stands for a fixed size, nor another size of a graph."""
UNLIMITED = 1 << 62


class TracedGraph(NamedTuple):
    """`network` names the nodes of the network before the last layer: what may be computed in fewer bits."""

    model: ModelProto
    network: tuple[str, ...]


@torch.no_grad()
def trace(graph: DecisionGraph, input_name: str) -> TracedGraph:
    """The graph of a module in evaluation mode, for any number of images; a DsuiError where ONNX lacks an operation."""
    import onnxscript.optimizer

    example = torch.cat([graph.example, graph.example])[:BATCH]
    images = torch.export.Dim("N")
    try:
        with without_remarks():
            program = torch.export.export(graph, (example,), dynamic_shapes=({0: images},), strict=False)
            program.graph.eliminate_dead_code()  # most scores: translating them would take most of the time
            if any(node.target in OWN for node in program.graph.nodes):
                program = program.run_decompositions(dict(OWN))
            exported = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=[input_name],
                output_names=list(graph.names),
            )
            assert exported is not None
            onnxscript.optimizer.optimize_ir(exported.model, input_size_limit=UNLIMITED, output_size_limit=UNLIMITED)
            model = exported.model_proto
    except (torch.onnx.OnnxExporterError, torch._dynamo.exc.TorchDynamoException, RuntimeError) as error:
        raise _not_traced(graph, str(error.__cause__ or error)) from error
    network = tuple(node.name for node in model.graph.node if _of_network(node))
    _forget_sources(model)
    model.ir_version = min(model.ir_version, IR_VERSION)
    return TracedGraph(model, network)


def _not_traced(graph: DecisionGraph, reason: str) -> DsuiError:
    """PyTorch's reason is long, and of use only where no detector explains it."""
    if graph.scorer.detector is None:
        return DsuiError(f"this run cannot be written as ONNX ({shorten(reason)}); predict with dsui predict.")
    return DsuiError(
        f"the threshold is by the detector {graph.scorer.detector.name}, whose score ONNX has no operations for; save "
        "one by another score with dsui threshold RUN --coverage 0.95 --save, or predict with dsui predict."
    )


def _of_network(node: object) -> bool:
    scopes = next((each.value for each in node.metadata_props if each.key == SCOPES), "")  # type: ignore[attr-defined]
    return any(NETWORK.search(name) for name in re.findall(r"'([^']*)'", scopes))


def _forget_sources(model: ModelProto) -> None:
    """Remove what names the files and lines of this machine."""
    model.graph.ClearField("doc_string")
    model.ClearField("doc_string")
    for holder in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        holder.ClearField("metadata_props")
    for value in (*model.graph.value_info, *model.graph.initializer):
        value.ClearField("metadata_props")
    for node in model.graph.node:
        node.ClearField("doc_string")
