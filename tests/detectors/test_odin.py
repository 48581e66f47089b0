from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dsui.detectors.odin import Odin
from dsui.methods.method import Method
from dsui.methods.registry import build
from dsui.outputs import Outputs
from dsui.runs.recipe_file import load_recipe
from dsui.scores import max_probability
from tests.support.toy_features import BIAS, WEIGHT, WIDTH, faint, in_domain, separation


class Linear(Method):
    """The toy's classifier of features [B, 1, 1, M] as images."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(WIDTH, len(WEIGHT), dtype=torch.float64)
        with torch.no_grad():
            self.output.weight.copy_(WEIGHT)
            self.output.bias.copy_(BIAS)

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.output(images.flatten(1))
        return found

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        raise NotImplementedError

    def logits(self, output: Tensor) -> Tensor:
        return output

    def predict(self, images: Tensor) -> Outputs:
        return Outputs(images.flatten(1), self(images))


def images(outputs: Outputs) -> Tensor:
    return outputs.features[:, None, None]


def test_without_step_and_temperature_odin_is_max_p() -> None:
    torch.manual_seed(0)
    method = build("msp", "small", 1, 10, load_recipe("demo", "digits")).eval()
    pixels = torch.randn(16, 1, 8, 8)
    with torch.no_grad():
        expected = max_probability(method(pixels))
    assert torch.equal(Odin(temperature=1, epsilon=0).score_images(method, pixels, (0.5,)), expected)


def test_the_step_follows_the_closed_gradient_of_a_linear_network() -> None:
    method, x = Linear().eval(), images(faint(20))
    logits = x.flatten(1) @ WEIGHT.T + BIAS
    one_hot = nn.functional.one_hot(logits.argmax(1), len(WEIGHT))
    gradient = ((logits / 10).softmax(1) - one_hot) @ WEIGHT  # 0 for units that the classifier does not read
    moved = x.flatten(1) - 0.01 / 0.25 * torch.where(gradient >= 0, 1.0, -1.0).double()
    expected = max_probability((moved @ WEIGHT.T + BIAS) / 10)
    found = Odin(temperature=10, epsilon=0.01).score_images(method, x, (0.25,))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)  # float64


def test_a_pixel_without_gradient_moves_down() -> None:
    class Rectified(Linear):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images.relu())

    method, x = Rectified().eval(), torch.zeros(1, 1, 1, WIDTH, dtype=torch.float64)
    assert torch.equal(Odin(1, 0.5).score_images(method, x, (0.5,)), Odin(1, 0).score_images(method, x, (0.5,)))


def test_the_step_of_each_channel_is_divided_by_its_own_deviation() -> None:
    method, x = Linear().eval(), images(faint(20)).view(20, WIDTH // 8, 1, 8)  # each class reads one channel
    logits = x.flatten(1) @ WEIGHT.T + BIAS
    rises = nn.functional.one_hot(logits.argmax(1), len(WEIGHT)).double() * 2 - 1  # for the likeliest class alone
    std = torch.tensor([0.1, 0.2, 0.4, 0.5, 0.8, 1.0], dtype=torch.float64)
    moved = logits + rises * 0.01 / std[:5] * WEIGHT.sum(1)
    found = Odin(1, 0.01).score_images(method, x, std.tolist())
    torch.testing.assert_close(found, max_probability(moved), rtol=1e-12, atol=1e-12)  # float64


def test_odin_separates_the_toy() -> None:
    method, odin = Linear().eval(), Odin()
    known, foreign = (odin.score_images(method, images(part), (0.5,)) for part in (in_domain(100), faint()))
    assert separation(known, foreign) > 0.95


def test_parameters_keep_their_gradients_and_no_grad_around_is_no_harm() -> None:
    method, x = Linear().eval(), images(faint(5))
    plain = Odin().score_images(method, x, (0.5,))
    assert not plain.requires_grad
    with torch.no_grad():
        assert torch.equal(Odin().score_images(method, x, (0.5,)), plain)
    with torch.inference_mode():
        assert torch.equal(Odin().score_images(method, x, (0.5,)), plain)
    assert all(p.grad is None for p in method.parameters())


def test_bad_input_is_refused_in_a_sentence() -> None:
    method, x = Linear(), images(faint(5))
    with pytest.raises(ValueError, match=r"the method is in training mode; call its eval\(\) first"):
        Odin().score_images(method, x, (0.5,))
    with pytest.raises(ValueError, match=r"inputs have shape \[5, 1, 1, 48\] and std 3 values"):
        Odin().score_images(method.eval(), x, (0.5, 0.5, 0.5))
    with pytest.raises(ValueError, match="std must be positive"):
        Odin().score_images(method, x, (0.0,))
    with pytest.raises(ValueError, match="epsilon must be finite and not negative"):
        Odin(epsilon=-1)
    with pytest.raises(ValueError, match="temperature must be positive"):
        Odin(temperature=0)


def test_it_asks_what_the_method_predicts_and_not_what_it_trains() -> None:
    """DS-UI predicts inside the sphere."""
    torch.manual_seed(0)
    method = build("dsui", "small", 1, 10, load_recipe("demo", "digits")).eval()
    pixels = torch.randn(16, 1, 8, 8)
    with torch.no_grad():
        expected = max_probability(method.predict(pixels).logits)
    assert torch.equal(Odin(temperature=1, epsilon=0).score_images(method, pixels, (0.5,)), expected)
