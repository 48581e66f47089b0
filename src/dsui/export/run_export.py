"""A run as one ONNX file that decides: images in, label, probabilities, scores and decision out.

    exported = export_run(Path("runs/mine"), Path("model.onnx"))

The file is written only when ONNX Runtime, given its bytes, says what the run says (`dsui.export.agreement`), and then
under another name that is changed to its own at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dsui.deploy.predictor import Predictor
from dsui.errors import DsuiError
from dsui.export.agreement import Agreement, check_agreement, graph_outputs, run_outputs
from dsui.export.assembly import prepended, to_bytes
from dsui.export.check_images import CheckImages, images_to_check
from dsui.export.decision_graph import DecisionGraph
from dsui.export.description import CHECKS, METADATA, Input, describe, put
from dsui.export.onnx_session import Session
from dsui.export.preparation_graph import IMAGES, PIXELS
from dsui.export.tracing import TracedGraph, trace
from dsui.progress import Progress, silent
from dsui.runs.files import write_bytes

if TYPE_CHECKING:
    from onnx import ModelProto

NEEDED = ("onnx", "onnxruntime", "onnxscript")
ENDING = ".onnx"
WORK = "exporting"
STEPS = 4


@dataclass(frozen=True)
class Exported:
    """What was written, and how well it agrees with the run on the images that `images` names."""

    file: Path
    bytes: int
    name: str
    facts: Mapping[str, object]
    agreement: Agreement
    images: str
    nodes: int

    def to_mapping(self) -> dict[str, object]:
        """For JSON; of the facts those that name what was written."""
        shown = ("method", "input", "outputs", "precision", "thresholds")
        facts = {key: self.facts[key] for key in shown}
        return {
            "file": self.file,
            "bytes": self.bytes,
            "nodes": self.nodes,
            "name": self.name,
            **facts,
            "checked_on": self.images,
            "agreement": self.agreement.to_mapping(),
        }


def export_run(
    run: Path,
    out: Path,
    *,
    name: str | None = None,
    root: Path | None = None,
    progress: Progress = silent,
) -> Exported:
    """Write the run in the folder `run` to `out`; a DsuiError says why it cannot be."""
    check_can_export(out)
    progress(WORK, 0, STEPS)
    predictor = Predictor.load(run, "cpu")
    weights = predictor.model.facts.fingerprint()
    made_from = input_kind(predictor)
    traced, outputs = _traced(predictor, made_from)
    progress(WORK, 1, STEPS)
    images = images_to_check(predictor, made_from, root)
    progress(WORK, 2, STEPS)
    model = traced.model if made_from == "features" else prepended(traced.model, predictor.form)
    facts = describe(predictor, name or predictor.model.facts.name, made_from, outputs, weights)
    put(model, METADATA, facts)
    agreement = _agreement(predictor, model, made_from, images)
    put(model, CHECKS, {"images": images.source, "agreement": agreement.to_mapping()})
    progress(WORK, 3, STEPS)
    content = to_bytes(model)
    write_bytes(out, content)
    progress(WORK, 4, STEPS)
    return Exported(out, len(content), str(facts["name"]), facts, agreement, images.source, len(model.graph.node))


def check_can_export(out: Path) -> None:
    """Raise where packages are missing or the file has another ending."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise DsuiError(f"dsui export needs {' and '.join(missing)}; run pip install 'dsui[export]'.")
    if out.suffix.lower() != ENDING:
        raise DsuiError(f"{out} must end in {ENDING}; choose such a name.")


def input_kind(predictor: Predictor) -> Input:
    """Images, also for a run on features that knows the network which made these; else features."""
    facts = predictor.model.facts
    return "features" if facts.config.on_features and facts.embedding is None else "images"


def _traced(predictor: Predictor, made_from: Input) -> tuple[TracedGraph, tuple[str, ...]]:
    graph = DecisionGraph(predictor, predictor.embedder if made_from == "images" else None).eval()
    return trace(graph, PIXELS if made_from == "images" else "features"), graph.names


def _agreement(predictor: Predictor, model: ModelProto, made_from: Input, images: CheckImages) -> Agreement:
    session = Session(to_bytes(model))
    assert session.input == (IMAGES if made_from == "images" else "features")
    limits = () if predictor.chosen is None else predictor.chosen.limits
    embedder = predictor.embedder if made_from == "images" else None
    wanted = run_outputs(predictor, images.inputs, embedder)
    return check_agreement(wanted, graph_outputs(session, images.inputs), limits)
