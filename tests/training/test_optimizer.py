"""Which parameters decay, and what else a method says about its training."""

from __future__ import annotations

import pytest

from dsui.methods.method import Method
from dsui.methods.registry import build
from dsui.runs.recipe_file import load_recipe
from dsui.training.optimizer import parameter_groups


def built(method: str, options: dict[str, object], **settings: object) -> tuple[Method, set[str]]:
    """The method, and the names of its parameters that decay."""
    recipe = load_recipe("demo", "digits", {"weight_decay": 0.5, **settings})
    made = build(method, "small", 1, 10, recipe, options)
    (turn,) = made.turns()
    groups = parameter_groups(made, turn, recipe)
    names = {id(parameter): name for name, parameter in made.named_parameters()}
    listed = [(names[id(each)], group["weight_decay"]) for group in groups for each in group["params"]]  # type: ignore[attr-defined]
    assert sorted(name for name, _ in listed) == sorted(names.values())
    return made, {name for name, decay in listed if decay}


@pytest.mark.parametrize(("method", "options"), [("dsui", {}), ("ensemble", {"member": "dsui", "members": 2})])
@pytest.mark.parametrize("decay_mixture", [False, True])
@pytest.mark.parametrize("decay_norms", [False, True])
def test_the_method_decides_about_its_mixture_and_the_recipe_about_norms_and_biases(
    method: str, options: dict[str, object], decay_mixture: bool, decay_norms: bool
) -> None:
    made, decayed = built(method, options, decay_mixture=decay_mixture, decay_norms=decay_norms)
    for name, parameter in made.named_parameters():
        in_mixture = ".head." in f".{name}"
        expected = decay_mixture if in_mixture else decay_norms or parameter.ndim > 1
        assert (name in decayed) == expected, name


@pytest.mark.parametrize(("method", "options"), [("dsui", {}), ("ensemble", {"member": "dsui", "members": 2})])
def test_an_objective_that_reads_its_value_is_not_captured_and_a_warm_up_leaves_gradients_out(
    method: str, options: dict[str, object]
) -> None:
    usual, literal, warming = (
        built(method, options, **settings)[0] for settings in ({}, {"objective": "literal"}, {"density_warm_up": 1})
    )
    assert (usual.capturable, usual.partial_gradients) == (True, False)
    assert (literal.capturable, literal.partial_gradients) == (False, False)
    assert (warming.capturable, warming.partial_gradients) == (True, True)


def test_settings_of_mixtures_say_nothing_about_a_method_without_one() -> None:
    made, _ = built("msp", {}, objective="literal", density_warm_up=1, decay_mixture=True)
    assert (made.capturable, made.partial_gradients, made.decay_mixture) == (True, False, False)
