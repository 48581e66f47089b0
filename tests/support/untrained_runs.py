"""DS-UI with random weights and thresholds, as a run would load it, and whether it exports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dsui.data.augment import Transform
from dsui.deploy.predictor import Predictor
from dsui.export.agreement import check_agreement, graph_outputs, run_outputs
from dsui.export.assembly import prepended
from dsui.export.decision_graph import DecisionGraph
from dsui.export.onnx_session import Session
from dsui.export.tracing import TracedGraph, trace
from dsui.limits import Criterion, Limit
from dsui.methods.registry import build
from dsui.runs.acceptance import Thresholds
from dsui.runs.calibration import Calibration
from dsui.runs.model import Model, RunFacts, forward
from dsui.scores import reference
from tests.support.digit_runs import digit_config

CLASSES = 3
LIMITS = (Limit("uncertainty", 0.5, "errors"), Limit("foreignness", 0.0, "foreign images"))


def untrained(backbone: str, size: int, **settings: Any) -> Predictor:
    """On colour images of `size` pixels."""
    config = replace(digit_config("dsui", **settings), backbone=backbone, size=size, channels=3)
    torch.manual_seed(0)
    method = build("dsui", backbone, 3, CLASSES, config.recipe, config.options).eval()
    transform, device = Transform(mean=config.recipe.mean, std=config.recipe.std), torch.device("cpu")
    known = reference([forward(method, transform, noise(16, size))])
    nothing = torch.zeros(0, dtype=torch.float64)
    facts = RunFacts(Path("untrained"), config, tuple("abc"))
    predictor = Predictor(Model(facts, method, transform, device), Calibration(known, nothing, nothing.bool()))
    predictor.chosen = Thresholds(LIMITS, Criterion(0.5), 0.5, 0.0, 16)
    return predictor


def noise(count: int, size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def check_export(predictor: Predictor) -> TracedGraph:
    """The graph, after ONNX Runtime was seen to say with it what the run says."""
    traced = trace(DecisionGraph(predictor).eval(), "pixels")
    images = noise(9, predictor.form.size)
    session = Session(prepended(traced.model, predictor.form).SerializeToString())
    check_agreement(run_outputs(predictor, images), graph_outputs(session, images), LIMITS)
    return traced
