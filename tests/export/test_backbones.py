"""Networks of any kind export, and agree with PyTorch: with and without batch norm, and a transformer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsui.backbones.libraries import Pooled
from dsui.backbones.own import as_backbone
from dsui.backbones.registry import provided_backbone
from dsui.data.augment import Transform
from dsui.deploy.predictor import Predictor
from dsui.export.agreement import check_agreement, graph_outputs, run_outputs
from dsui.export.assembly import prepended
from dsui.export.decision_graph import DecisionGraph
from dsui.export.fewer_bits import with_fewer_bits
from dsui.export.onnx_session import Session
from dsui.export.tracing import trace
from dsui.limits import Criterion, Limit
from dsui.methods.registry import build
from dsui.runs.acceptance import Thresholds
from dsui.runs.calibration import Calibration
from dsui.runs.model import Model, RunFacts, forward
from dsui.scores import reference
from tests.support.digit_runs import digit_config

SIZE, CLASSES = 32, 3
LIMITS = (Limit("uncertainty", 0.5, "errors"), Limit("foreignness", 0.0, "foreign images"))


def untrained(backbone: str) -> Predictor:
    """DS-UI with random weights on images of 32 pixels, and thresholds."""
    config = replace(digit_config("dsui"), backbone=backbone, size=SIZE, channels=3)
    torch.manual_seed(0)
    method = build("dsui", backbone, 3, CLASSES, config.recipe, config.options).eval()
    transform, device = Transform(mean=config.recipe.mean, std=config.recipe.std), torch.device("cpu")
    images = torch.randint(256, (16, 3, SIZE, SIZE), dtype=torch.uint8)
    known = reference([forward(method, transform, images)])
    nothing = torch.zeros(0, dtype=torch.float64)
    facts = RunFacts(Path("untrained"), config, tuple("abc"))
    calibration = Calibration(known, nothing, nothing.bool())
    predictor = Predictor(Model(facts, method, transform, device), calibration)
    predictor.chosen = Thresholds(LIMITS, Criterion(0.5), 0.5, 0.0, 16)
    return predictor


def transformer() -> torch.nn.Module:
    """Two layers of random weights."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.ViTConfig(image_size=SIZE, patch_size=8, **sizes)
    return Pooled(transformers.ViTModel(config).eval(), "pooled", SIZE)


def check(predictor: Predictor) -> None:
    traced = trace(DecisionGraph(predictor).eval(), "pixels")
    images = torch.randint(256, (9, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    wanted = run_outputs(predictor, images)
    session = Session(prepended(traced.model, predictor.form).SerializeToString())
    check_agreement(wanted, graph_outputs(session, images), LIMITS)
    halved = Session(prepended(with_fewer_bits(traced, "fp16", None), predictor.form).SerializeToString())
    found = graph_outputs(halved, images)["probabilities"]
    assert abs(found - wanted["probabilities"]).max() < 0.01  # 2^-11 of each value, through some twenty layers


@pytest.mark.parametrize("backbone", ["resnet18", "vgg16"])
def test_convolutional_networks_export(backbone: str) -> None:
    check(untrained(backbone))


def test_a_transformer_exports() -> None:
    with provided_backbone("hf:tiny", as_backbone(transformer(), (3, SIZE, SIZE))):
        check(untrained("hf:tiny"))
