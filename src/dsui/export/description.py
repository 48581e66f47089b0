"""What the metadata of an exported file say: one JSON object, which the runtime reads.

docs/export.md lists its fields. What the checks of the export measured stands under another key, for people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from dsui import __version__
from dsui.deploy.predictor import Predictor
from dsui.evaluation.verdict import judge
from dsui.evaluation.verdict_facts import facts_of_run
from dsui.monitoring.uncertainty import order_statistics
from dsui.runs.acceptance import Thresholds
from dsui.runs.embedding import Embedding
from dsui.runtime.facts import FORMAT

if TYPE_CHECKING:
    from onnx import ModelProto

Input = Literal["images", "features"]


def describe(
    predictor: Predictor, name: str, made_from: Input, outputs: tuple[str, ...], weights: str
) -> dict[str, object]:
    """The facts of a run that a file of its own must carry; `weights` is the fingerprint of the run's."""
    facts, chosen = predictor.model.facts, predictor.chosen
    form = predictor.form if made_from == "images" else None
    preparation = None if form is None or form.preparation is None else form.preparation.facts()
    return {
        "format": FORMAT,
        "dsui": __version__,
        "name": name,
        "method": facts.config.method,
        "backbone": _backbone(predictor, made_from),
        "data": facts.config.data,
        "weights": weights,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "input": made_from,
        "channels": facts.config.channels if form is None else form.channels,
        "size": 1 if form is None else form.size,
        "preparation": preparation and {key: value for key, value in preparation.items() if key != "readout"},
        "classes": list(facts.classes),
        "outputs": list(outputs),
        "precision": "fp32",
        "temperature": predictor.calibration.temperature,
        "thresholds": None if chosen is None else _thresholds(chosen),
        "promise": None if chosen is None else promise(chosen),
        "calibration": _calibration(predictor),
        "verdict": _verdict(predictor),
    }


def promise(chosen: Thresholds) -> str:
    """What thresholds promise of images like the training images, as `dsui.runs.threshold` proves it."""
    coverage, risk = chosen.asked
    if coverage is not None:
        return (
            f"Of images like the training images at least {coverage:.4g} are accepted, on average over draws of the "
            f"{chosen.images:,} calibration images; images unlike them are not covered."
        )
    return (
        f"With 95 % confidence over draws of the {chosen.images:,} calibration images, at most {risk:.4g} of the "
        "accepted images like the training images are wrong; images unlike them are not covered."
    )


def put(model: ModelProto, key: str, values: Mapping[str, object]) -> None:
    """Write JSON under a key of the metadata, in place of what stood there."""
    kept = [(each.key, each.value) for each in model.metadata_props if each.key != key]
    model.ClearField("metadata_props")
    for name, value in (*kept, (key, json.dumps(values, allow_nan=False))):
        model.metadata_props.add(key=name, value=value)


def _backbone(predictor: Predictor, made_from: Input) -> str:
    """The network between the input and the head, as its spec names it."""
    facts = predictor.model.facts
    if made_from == "images" and facts.embedding is not None:
        return Embedding.from_text(facts.embedding).backbone
    return facts.config.backbone


def _thresholds(chosen: Thresholds) -> dict[str, object]:
    return {
        "limits": [limit._asdict() for limit in chosen.limits],
        "asked": chosen.asked._asdict(),
        "coverage": chosen.coverage,
        "risk": chosen.risk,
        "images": chosen.images,
    }


def _calibration(predictor: Predictor) -> dict[str, object] | None:
    """Quantiles of the held-out images' scores, by which a viewer places a new image's."""
    stored = predictor.calibration
    if len(stored.errors) == 0:
        return None
    scores = {"uncertainty": stored.uncertainties}
    if "foreignness" in stored.scores:
        scores["foreignness"] = stored.scores["foreignness"]
    quantiles: dict[str, object] = {name: _quantiles(values) for name, values in scores.items()}
    return {"images": len(stored.errors), "errors": int(stored.errors.sum()), **quantiles}


def _quantiles(values: Tensor) -> list[float]:
    """The 0, 1, ..., 100 % quantiles, each the value of an image, so that alarms are exact (`dsui.monitoring`)."""
    return order_statistics(values.double().numpy())


def _verdict(predictor: Predictor) -> dict[str, str] | None:
    found = facts_of_run(predictor.model.facts)
    if found is None:
        return None
    verdict = judge(found)
    return {"grade": str(verdict.grade), "headline": verdict.headline, "next_step": verdict.next_step}
