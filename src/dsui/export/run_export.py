"""A run as one ONNX file that decides: images in, label, probabilities, scores and decision out.

    exported = export_run(Path("runs/mine"), Path("model.onnx"))

The file is written only when ONNX Runtime, given its bytes, says what the run says (`dsui.export.agreement`), and then
under another name that is changed to its own at the end. With fewer bits the float32 graph is checked like that, and
what the bits change is measured.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dsui.checks import check_choice
from dsui.deploy.predictor import Predictor
from dsui.errors import DsuiError, RunError
from dsui.excerpt import excerpt, shorten
from dsui.export.agreement import Agreement, check_agreement, graph_outputs, run_outputs
from dsui.export.assembly import prepended, to_bytes
from dsui.export.check_images import CheckImages, images_to_check
from dsui.export.decision_graph import DecisionGraph
from dsui.export.description import Input, describe, put
from dsui.export.effects import Effects, measure_effects
from dsui.export.fewer_bits import PRECISIONS, Precision, with_fewer_bits
from dsui.export.onnx_session import Session
from dsui.export.preparation_graph import PIXELS
from dsui.export.resize_check import ResizeChange, resize_change
from dsui.export.tracing import trace
from dsui.progress import Progress, silent
from dsui.runs.files import write_bytes
from dsui.runtime.facts import CHECKS, KEY

if TYPE_CHECKING:
    from onnx import ModelProto

NEEDED = ("onnx", "onnxruntime", "onnxscript")
ENDING = ".onnx"
WORK = "exporting"
STEPS = 5
LONGEST_NAME = 100


@dataclass(frozen=True)
class Exported:
    """What was written, and how well it agrees with the run on the images that `images` names. `resizing` is None for a
    file that takes features, `effects` for one in float32."""

    file: Path
    bytes: int
    nodes: int
    facts: Mapping[str, object]
    images: str
    agreement: Agreement
    resizing: ResizeChange | None
    effects: Effects | None

    def to_mapping(self) -> dict[str, object]:
        """For JSON; of the facts those that say what was written."""
        shown = ("name", "method", "input", "outputs", "precision", "thresholds")
        return {
            "file": self.file,
            "bytes": self.bytes,
            "nodes": self.nodes,
            **{key: self.facts[key] for key in shown},
            **_checks(self.images, self.agreement, self.resizing, self.effects),
        }


def export_run(
    run: Path,
    out: Path,
    *,
    precision: Precision = "fp32",
    name: str | None = None,
    root: Path | None = None,
    progress: Progress = silent,
) -> Exported:
    """Write the run in the folder `run` to `out`; a DsuiError says why it cannot be."""
    check_choice("precision", precision, PRECISIONS)
    check_can_export(out, name)
    progress(WORK, 0, STEPS)
    predictor = Predictor.load(run, "cpu")
    weights = predictor.model.facts.fingerprint()
    made_from = input_kind(predictor)
    images = images_to_check(predictor, made_from, root)
    if precision == "int8":
        images.check_can_calibrate()
    progress(WORK, 1, STEPS)
    graph = DecisionGraph(predictor, predictor.embedder if made_from == "images" else None).eval()
    traced = trace(graph, PIXELS if made_from == "images" else made_from)
    facts = describe(predictor, predictor.model.facts.name if name is None else name, made_from, graph.names, weights)
    progress(WORK, 2, STEPS)
    model = _whole(traced.model, predictor, made_from)
    put(model, KEY, facts)
    agreement = _agreement(predictor, to_bytes(model), images)
    resizing = resize_change(predictor.form, images.originals) if made_from == "images" else None
    progress(WORK, 3, STEPS)
    effects = None
    if precision != "fp32":
        facts["precision"] = precision
        calibration, others = images.halves()
        reduced = _whole(with_fewer_bits(traced, precision, calibration), predictor, made_from)
        put(reduced, KEY, facts)
        effects = measure_effects(to_bytes(model), to_bytes(reduced), precision, others)
        model = reduced
    put(model, CHECKS, _checks(images.source, agreement, resizing, effects))
    progress(WORK, 4, STEPS)
    content = to_bytes(model)
    try:
        write_bytes(out, content)
    except RunError as error:
        why = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
        raise DsuiError(f"{out} cannot be written ({why}); choose another file.") from error
    progress(WORK, STEPS, STEPS)
    return Exported(out, len(content), len(model.graph.node), facts, images.source, agreement, resizing, effects)


def check_can_export(out: Path, name: str | None = None) -> None:
    """Raise where packages are missing, the file has another ending or no folder that can be written, or the name is
    none."""
    check_packages(*NEEDED)
    if out.suffix.lower() != ENDING:
        raise DsuiError(f"{out} must end in {ENDING}; choose such a name.")
    if not out.parent.is_dir():
        raise DsuiError(f"{out.parent} is no folder to write {out.name} to; make it, or choose another.")
    if out.is_dir():
        raise DsuiError(f"{out} is a folder; choose the name of a file.")
    if not os.access(out.parent, os.W_OK):
        raise DsuiError(f"nothing can be written to the folder {out.parent}; choose another.")
    if name is not None and (not name.strip() or shorten(name, LONGEST_NAME) != name):
        raise DsuiError(
            f"the name {excerpt(name)} is not one printable line of 1 to {LONGEST_NAME} characters; choose another."
        )


def check_packages(*names: str) -> None:
    """Raise where one of these is missing."""
    if missing := [name for name in names if find_spec(name) is None]:
        raise DsuiError(f"exported files need {' and '.join(missing)}; run pip install 'dsui[export]'.")


def input_kind(predictor: Predictor) -> Input:
    """Images, also for a run on features that knows the network which made these; else features."""
    facts = predictor.model.facts
    return "features" if facts.config.on_features and facts.embedding is None else "images"


def _whole(traced: ModelProto, predictor: Predictor, made_from: Input) -> ModelProto:
    return traced if made_from == "features" else prepended(traced, predictor.form)


def _agreement(predictor: Predictor, content: bytes, images: CheckImages) -> Agreement:
    limits = () if predictor.chosen is None else predictor.chosen.limits
    embedder = predictor.embedder if images.inputs.ndim == 4 else None
    wanted = run_outputs(predictor, images.inputs, embedder)
    return check_agreement(wanted, graph_outputs(Session(content), images.inputs), limits)


def _checks(
    images: str, agreement: Agreement, resizing: ResizeChange | None, effects: Effects | None
) -> dict[str, object]:
    return {
        "checked_on": images,
        "agreement": agreement.to_mapping(),
        "resizing": None if resizing is None else resizing._asdict(),
        "effects": None if effects is None else effects.to_mapping(),
    }
