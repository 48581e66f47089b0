"""A run's settings are shown without those that its method never reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsui.methods.registry import build, names
from dsui.report.settings import MIXTURE, settings
from dsui.runs.config import RunConfig
from dsui.runs.model import RunFacts
from dsui.runs.recipe_file import load_recipe

RECIPE = load_recipe("paper", "cifar10")
MIXED = {"dsui", "dsui-density"}


def facts(method: str, **options: object) -> RunFacts:
    config = RunConfig(
        data="cifar10", backbone="small", method=method, seed=0, size=32, channels=3, recipe=RECIPE, options=options
    )
    return RunFacts(Path("run"), config, tuple("0123456789"))


@pytest.mark.parametrize(
    ("run", "has_mixture"),
    [
        (facts("ensemble", member="dsui", members=2), True),
        *((facts(method), method in MIXED) for method in names()),
    ],
    ids=lambda value: value.config.method if isinstance(value, RunFacts) else None,
)
def test_settings_of_mixtures_are_shown_of_methods_that_have_one(run: RunFacts, has_mixture: bool) -> None:
    before = torch.get_rng_state()
    shown = settings(run)
    assert set(shown.mixture) == (MIXTURE if has_mixture else set())
    assert set(shown.general) == set(run.config.mapping()) - MIXTURE
    assert torch.equal(torch.get_rng_state(), before), "asking the method draws no random number"


@pytest.mark.parametrize("method", [method for method in names() if method not in MIXED])
def test_settings_of_mixtures_change_nothing_in_a_method_without_one(method: str) -> None:
    options = {
        "decay_mixture": True,
        "head": "released",
        "components": 7,
        "objective": "literal",
        "rho": 0.5,
        "gamma": 0.3,
        "regularizer": None,
        "density_warm_up": 2,
        "initialize": True,
    }
    assert options.keys() == MIXTURE
    assert all(options[key] != value for key, value in RECIPE.method_options.items())
    other = replace(RECIPE, method_options=options)
    built = []
    for recipe in (RECIPE, other):
        torch.manual_seed(0)
        built.append(build(method, "small", 3, 10, recipe).state_dict())
    first, second = built
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
