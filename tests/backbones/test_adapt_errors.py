"""What `adapt` cannot do ends in one sentence that says what was found and what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dsui.backbones.adapt import adapt

SHAPE = (64,)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = nn.Linear(64, 6), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.body(x).relu())


class Softmax(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x).softmax(1)


class ActivationInPlace(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x).relu_()


class Tokens(Net):
    def forward(self, x: Tensor) -> Any:
        return self.fc(self.body(x)[:, None].expand(-1, 4, -1))


class FlatTokens(Net):
    def forward(self, x: Tensor) -> Any:
        return self.fc(self.body(x).repeat_interleave(4, 0))


class SharedLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.fc(x).relu())


class FixedWidth(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x)[:, :5]


class AsksTheClassifier(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x)[:, : self.fc.out_features]


class Unused(Net):
    def forward(self, x: Tensor) -> Any:
        return x


class Wordless(Net):
    def forward(self, x: Tensor) -> Any:
        return {"label": int(super().forward(x).argmax())}


class Convolutional(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Softmax(), r"returns logits \[2, 5\] and not .* \('fc' was the last to run and gave \[2, 5\]\); .*softmax"),
        (ActivationInPlace(), r"remove what follows the classifier"),
        (Tokens(), r"'fc' of Tokens takes \[2, 4, 6\] for 2 inputs, .*; pool the tokens"),
        (FlatTokens(), r"'fc' of FlatTokens takes \[8, 6\] for 2 inputs"),
        (SharedLinear(), r"'fc' of SharedLinear runs more than once"),
        (FixedWidth(), r"FixedWidth without 'fc' returns \[2, 5\] instead of \[2, 6\]; return"),
        (AsksTheClassifier(), r"AsksTheClassifier without 'fc' fails .*out_features"),
        (Unused(), r"none ran.*layer=\"fc\""),
        (Wordless(), r"returns dict without a tensor"),
        (Convolutional(), r"Convolutional has no torch.nn.Linear; let it return"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_model_without_a_plain_classifier_at_its_end(model: nn.Module, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        adapt(model, SHAPE)


@pytest.mark.parametrize("layer", ["fcc", "", "body.0"])
def test_layer_that_does_not_exist(layer: str) -> None:
    with pytest.raises(ValueError, match=rf"has no torch.nn.Linear '{layer}'; its last ones are body, fc"):
        adapt(Net(), SHAPE, layer=layer)


def test_layer_whose_output_is_not_returned() -> None:
    with pytest.raises(ValueError, match=r"not what 'body' gives \('body' was the last to run and gave \[2, 6\]\)"):
        adapt(Net(), SHAPE, layer="body")


def test_example_the_model_does_not_take() -> None:
    with pytest.raises(ValueError, match=r"Net fails on inputs of shape \[2, 63\] \(.*\); check `example`"):
        adapt(Net(), (63,))


def test_model_without_values() -> None:
    with pytest.raises(ValueError, match="on the meta device"):
        adapt(Net().to("meta"), torch.zeros(2, 64))
