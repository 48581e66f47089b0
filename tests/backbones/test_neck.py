from __future__ import annotations

import pytest
import torch
from torch import nn

from dsui.backbones.neck import ENDINGS, Ending, Neck
from dsui.head import MoGMMHead
from dsui.released import ReleasedHead

BODY = ["BatchNorm1d", "Dropout", "Linear", "BatchNorm1d", "LeakyReLU", "Dropout", "Linear"]
AFTER_LAST: dict[Ending, list[str]] = {
    "linear": [],
    "normalized": ["BatchNorm1d"],
    "activated": ["BatchNorm1d", "LeakyReLU"],
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_layers_are_the_papers_up_to_the_ending(ending: Ending) -> None:
    neck = Neck(512, ending=ending)
    assert [type(layer).__name__ for layer in neck.layers] == BODY + AFTER_LAST[ending]
    shapes = [(layer.in_features, layer.out_features) for layer in neck.layers if isinstance(layer, nn.Linear)]
    assert shapes == [(512, 2048), (2048, 2048)]
    assert all(layer.negative_slope == 0.2 for layer in neck.layers if isinstance(layer, nn.LeakyReLU))
    norms = [layer.num_features for layer in neck.layers if isinstance(layer, nn.BatchNorm1d)]
    assert norms == [512, 2048] + [2048] * (ending != "linear")
    assert neck.out_features == 2048


def test_endings_are_stages_of_one_net() -> None:
    linear, normalized, activated = (Neck(6, 16, ending=ending).eval() for ending in ENDINGS)
    linear.load_state_dict(activated.state_dict(), strict=False)
    normalized.load_state_dict(activated.state_dict())
    x = torch.randn(5, 6)
    with torch.no_grad():
        after_norm = activated.layers[-2](linear(x))
        assert torch.equal(normalized(x), after_norm)
        assert torch.equal(activated(x), nn.functional.leaky_relu(after_norm, 0.2))


@pytest.mark.parametrize(("options", "expected"), [({}, 0.2), ({"dropout": 0.7}, 0.7)])
def test_dropout_is_the_papers_unless_asked_otherwise(options: dict[str, float], expected: float) -> None:
    neck = Neck(6, 16, **options)  # type: ignore[arg-type]
    assert [layer.p for layer in neck.layers if isinstance(layer, nn.Dropout)] == [expected, expected]


@pytest.mark.parametrize(("ending", "project"), [("linear", True), ("activated", False)])
def test_gradients_reach_every_parameter_through_the_head(ending: Ending, project: bool) -> None:
    torch.manual_seed(0)
    neck, head = Neck(6, 16, ending=ending).eval(), MoGMMHead(16, 3, components=2, project=project).eval()
    head(neck(torch.randn(8, 6))).class_scores.square().sum().backward()
    assert all(value.grad is not None and value.grad.any() for value in neck.parameters())


def test_released_head_takes_the_normalized_ending() -> None:
    neck, head = Neck(6, 16, dropout=0.7, ending="normalized"), ReleasedHead(16, 3)
    assert head(neck(torch.randn(8, 6))).logits.shape == (8, 3)


def test_unknown_ending_is_refused() -> None:
    with pytest.raises(ValueError, match="ending must be one of 'linear', 'normalized', 'activated', got 'relu'"):
        Neck(6, ending="relu")  # type: ignore[arg-type]
