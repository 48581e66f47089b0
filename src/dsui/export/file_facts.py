"""What an exported file says of itself, as groups of lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsui.errors import DsuiError
from dsui.excerpt import shorten
from dsui.export.description import CHECKS, METADATA
from dsui.plain_json import load_json
from dsui.regular_file import read_regular

if TYPE_CHECKING:
    from onnx import ModelProto

Groups = dict[str, dict[str, str | None]]
LARGEST = 1 << 31
SHOWN = ("name", "method", "backbone", "data", "precision", "created", "dsui", "weights")
MOST_CLASSES = 8
"""That are listed by name."""


def file_facts(path: Path) -> Groups:
    """Groups of facts by name; a DsuiError where the file was not written by `dsui export`."""
    model = _read(path)
    metadata = {each.key: each.value for each in model.metadata_props}
    try:
        facts: Any = load_json(metadata[METADATA])
        checks: Any = load_json(metadata.get(CHECKS, "{}"))
        return {
            "file": _of_file(path, model),
            "model": {**{name: str(facts[name]) for name in SHOWN}, "classes": _classes(facts["classes"])},
            "decision": _decision(facts),
            "checks": _of_checks(checks),
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DsuiError(f"{path} was not written by dsui export of this version; export the run again.") from error


def _read(path: Path) -> ModelProto:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model: ModelProto = onnx.ModelProto.FromString(read_regular(path, LARGEST))
    except OSError as error:
        raise DsuiError(f"{path} cannot be read ({error.strerror}); name a file of dsui export.") from error
    except (DecodeError, ValueError) as error:
        raise DsuiError(f"{path} is no ONNX file ({shorten(error)}); name a file of dsui export.") from error
    return model


def _of_file(path: Path, model: ModelProto) -> dict[str, str | None]:
    opset = next((each.version for each in model.opset_import if each.domain == ""), None)
    return {
        "size": f"{path.stat().st_size / 1e6:.2f} MB",
        "operations": f"{len(model.graph.node):,}",
        "in": ", ".join(each.name for each in model.graph.input),
        "out": ", ".join(each.name for each in model.graph.output),
        "ONNX": f"opset {opset}, IR {model.ir_version}",
    }


def _classes(names: list[str]) -> str:
    more = f", ... ({len(names):,} in all)" if len(names) > MOST_CLASSES else ""
    return ", ".join(shorten(name, 40) for name in names[:MOST_CLASSES]) + more


def _decision(facts: Mapping[str, Any]) -> dict[str, str | None]:
    chosen, calibration, verdict = facts["thresholds"], facts["calibration"], facts["verdict"]
    limits = () if chosen is None else chosen["limits"]
    return {
        "accepts": " and ".join(f"{each['score']} up to {each['value']:.4g}" for each in limits) or None,
        "promise": facts["promise"],
        "calibration": calibration and f"{calibration['images']:,} images, {calibration['errors']:,} of them wrong",
        "verdict": verdict and f"{verdict['headline']} Next: {verdict['next_step']}.",
    }


def _of_checks(checks: Mapping[str, Any]) -> dict[str, str | None]:
    agreement, resizing, effects = (checks.get(name) for name in ("agreement", "resizing", "effects"))
    return {
        "checked on": checks.get("checked_on"),
        "agreement": agreement and f"probabilities within {agreement['probability']:.1g}",
        "resizing": resizing and f"{resizing['changed']:.2%} of Pillow's values, by at most {resizing['most']} of 255",
        "fewer bits": effects
        and f"{effects['labels_changed']:.2%} of the labels change, {effects['speed']:.2f} times the speed",
    }
