"""What an exported file says of itself, as groups of lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsui.errors import ModelError
from dsui.excerpt import shorten
from dsui.plain_json import load_json
from dsui.runtime.facts import ModelFacts
from dsui.runtime.model_file import ModelFile, read_model

Groups = dict[str, dict[str, str | None]]
MOST_CLASSES = 8
"""That are listed by name."""


def file_facts(path: Path) -> Groups:
    """Groups of facts by name; a ModelError where the file was not written by `dsui export`."""
    file = read_model(path)
    try:
        checks = _of_checks(load_json(file.checks or b"{}"))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"what {path} says of its checks cannot be read; export it again.") from error
    return {
        "file": _of_file(file),
        "model": _of_model(file.facts),
        "decision": _decision(file.facts),
        "checks": checks,
    }


def _of_file(file: ModelFile) -> dict[str, str | None]:
    opset, ir = file.versions
    return {
        "size": f"{len(file.content) / 1e6:.2f} MB",
        "operations": f"{file.operations:,}",
        "ONNX": f"opset {opset}, IR {ir}",
        "in": file.facts.input,
        "out": ", ".join(shorten(name, 40) for name in file.facts.outputs),
    }


def _of_model(facts: ModelFacts) -> dict[str, str | None]:
    shown = ("name", "method", "backbone", "data", "precision", "created", "dsui", "weights")
    more = f", ... ({len(facts.classes):,} in all)" if len(facts.classes) > MOST_CLASSES else ""
    return {
        **{name: shorten(getattr(facts, name)) for name in shown},
        "takes": _taken(facts),
        "classes": ", ".join(shorten(name, 40) for name in facts.classes[:MOST_CLASSES]) + more,
    }


def _taken(facts: ModelFacts) -> str:
    if facts.size is None:
        return f"{facts.channels:,} features"
    kind = "grey" if facts.channels == 1 else "colour"
    fit = "centre" if facts.preparation is None else facts.preparation.fit
    return f"{kind} images, made {facts.size} x {facts.size} pixels ({fit})"


def _decision(facts: ModelFacts) -> dict[str, str | None]:
    chosen, calibration, verdict = facts.thresholds, facts.calibration, facts.verdict
    limits = () if chosen is None else chosen.limits
    return {
        "accepts": " and ".join(f"{shorten(each.score, 40)} up to {each.value:.4g}" for each in limits) or None,
        "promise": None if facts.promise is None else shorten(facts.promise, 400),
        "calibration": calibration and f"{calibration.images:,} images, {calibration.errors:,} of them wrong",
        "temperature": None if facts.temperature is None else f"{facts.temperature:.4g}",
        "verdict": verdict and shorten(verdict.short, 400),
    }


def _of_checks(checks: Any) -> dict[str, str | None]:
    agreement, resizing, effects = (checks.get(name) for name in ("agreement", "resizing", "effects"))
    return {
        "checked on": shorten(checks["checked_on"]) if "checked_on" in checks else None,
        "agreement": agreement and f"probabilities within {agreement['probability']:.1g}",
        "resizing": resizing and _resizing(resizing),
        "fewer bits": effects
        and f"{effects['labels_changed']:.2%} of the labels change, {effects['speed']:.2f} times the speed",
    }


def _resizing(found: Mapping[str, Any]) -> str:
    return f"{found['changed']:.2%} of Pillow's values differ, by at most {found['most']:d} of 255"
