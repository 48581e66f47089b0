"""Networks of any kind export, and agree with PyTorch: with and without batch norm, and a transformer."""

from __future__ import annotations

import pytest
import torch

from dsui.backbones.libraries import Pooled
from dsui.backbones.own import as_backbone
from dsui.backbones.registry import provided_backbone
from dsui.deploy.predictor import Predictor
from dsui.export.agreement import graph_outputs, run_outputs
from dsui.export.assembly import prepended
from dsui.export.fewer_bits import with_fewer_bits
from dsui.export.onnx_session import Session
from tests.support.untrained_runs import check_export, noise, untrained

SIZE = 32


def transformer() -> torch.nn.Module:
    """Two layers of random weights."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.ViTConfig(image_size=SIZE, patch_size=8, **sizes)
    return Pooled(transformers.ViTModel(config).eval(), "pooled", SIZE)


def check(predictor: Predictor) -> None:
    traced = check_export(predictor)
    halved = Session(prepended(with_fewer_bits(traced, "fp16", None), predictor.form).SerializeToString())
    images = noise(9, SIZE)
    found, wanted = (each["probabilities"] for each in (graph_outputs(halved, images), run_outputs(predictor, images)))
    assert abs(found - wanted).max() < 0.01  # 2^-11 of each value, through some twenty layers


@pytest.mark.parametrize("backbone", ["resnet18", "vgg16"])
def test_convolutional_networks_export(backbone: str) -> None:
    check(untrained(backbone, SIZE))


def test_a_transformer_exports() -> None:
    with provided_backbone("hf:tiny", as_backbone(transformer(), (3, SIZE, SIZE))):
        check(untrained("hf:tiny", SIZE))
