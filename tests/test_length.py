"""The density of lengths is scipy's log-normal, fitted by the moments of ln |h|."""

from __future__ import annotations

import torch
from scipy.stats import lognorm

from dsui.length import FEWEST, LogNormalLength
from dsui.methods.dsui import DualSupervised
from dsui.runs.recipe_file import load_recipe


def test_density_and_fit_are_those_of_scipy() -> None:
    torch.manual_seed(0)
    norms, labels = torch.exp(0.3 * torch.randn(400) + 1), torch.arange(400) % 2
    norms[labels == 1] *= 3
    length = LogNormalLength(3)
    length.fit(norms, labels)
    new = torch.tensor([0.5, 2.0, 9.0])
    for row in range(2):
        logs = norms[labels == row].double().log()
        oracle = lognorm(s=logs.std().item(), scale=logs.mean().exp().item())
        # mean and deviation are kept in float32
        torch.testing.assert_close(
            length.log_prob(new)[:, row], torch.tensor(oracle.logpdf(new.double().numpy())), rtol=1e-5, atol=1e-5
        )


def test_a_class_of_few_samples_takes_what_all_have() -> None:
    norms, labels = torch.linspace(1, 2, 50), torch.zeros(50, dtype=torch.int64)
    labels[: FEWEST - 1] = 1
    length = LogNormalLength(2)
    length.fit(norms, labels)
    torch.testing.assert_close(length.mean[1], norms.log().mean())
    assert length.log_prob(torch.zeros(1)).isfinite().all()


def test_a_network_with_lengths_has_them_in_its_densities_and_logits_on_the_sphere() -> None:
    torch.manual_seed(0)
    recipe = load_recipe("demo", "digits")
    plain, dense = (DualSupervised("small", 1, 3, recipe, length=each) for each in ("ball", "density"))
    dense.load_state_dict(plain.state_dict(), strict=False)
    images, labels = torch.randn(24, 1, 8, 8), torch.arange(24) % 3
    plain.train()(images)
    dense.load_state_dict(plain.state_dict(), strict=False)
    plain.eval(), dense.eval()
    dense.complete([(images, labels)])
    with torch.no_grad():
        ball, found = plain.predict(images), dense.predict(images)
        norms = plain(images).norm
        assert dense.length is not None
        expected = ball.log_joint + dense.length.log_prob(norms)  # type: ignore[operator]
    torch.testing.assert_close(found.log_joint, expected)
    torch.testing.assert_close(found.logits.argmax(1), ball.logits.argmax(1))
    assert found.norm is None
