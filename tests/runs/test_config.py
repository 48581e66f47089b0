"""What identifies a run, as it is written and read again."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
import yaml

from dsui.backbones.preparation import Preparation
from dsui.errors import DsuiError
from dsui.methods.registry import names, option_kinds
from dsui.recipe import ADDED_LATER, Recipe
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe
from dsui.schema import SchemaError

PLAIN = RunConfig(
    data="cifar10",
    backbone="resnet18",
    method="dsui",
    seed=3,
    size=32,
    channels=3,
    recipe=load_recipe("paper", "cifar10"),
)
FULL = replace(
    PLAIN,
    method="ensemble",
    options={"members": 3, "member": "msp"},
    outliers="svhn",
    known="cat,dog",
    held_out=0.1,
    skip_bad=True,
    preparation=Preparation(size=32, edge=36).facts(),
    recipe=replace(
        PLAIN.recipe,
        padding=0,
        smallest_crop=0.35,
        jitter=0.2,
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.3, 0.4),
        doubles="turns",
        doubles_weight=0.5,
        doubles_copies=3,
        regmixup=0.25,
        freeze_until="stage4",
        backbone_rate=0.1,
        layer_decay=0.7,
        balance="logits",
        patience=7,
    ),
)


@pytest.mark.parametrize("config", [PLAIN, FULL])
def test_a_config_survives_yaml_and_json(config: RunConfig) -> None:
    """config.yaml holds it as YAML, the weights as JSON, which has lists for tuples."""
    assert RunConfig.from_mapping(yaml.safe_load(yaml.safe_dump(config.mapping()))) == config
    assert RunConfig.from_mapping(json.loads(json.dumps(config.mapping()))) == config


def test_no_setting_of_the_recipe_hides_one_of_the_run() -> None:
    own = {field.name for field in fields(RunConfig)} - {"recipe"}
    of_recipe = {field.name for field in fields(Recipe)} - {"name", "method_options"}
    of_methods = {option for method in names() for option in option_kinds(method)}
    assert not own & of_recipe
    assert not of_methods & (own | of_recipe)
    assert set(FULL.mapping()) == own | of_recipe | set(FULL.recipe.method_options) | {"recipe"}
    assert PLAIN.mapping()["recipe"] == "paper"


def test_weights_of_before_a_setting_was_added_are_still_readable() -> None:
    later = {"options", "outliers", "known", "held_out", "epochs", "sam", "mean"}
    older = {name: value for name, value in PLAIN.mapping().items() if name not in later}
    assert RunConfig.from_mapping(older) == PLAIN


def test_an_option_that_repeats_the_recipe_makes_no_other_run() -> None:
    repeated, changed = replace(PLAIN, options={"components": 8}), replace(PLAIN, options={"components": 4})
    assert repeated == PLAIN
    assert repeated.mapping() == PLAIN.mapping()
    assert changed.options == {"components": 4}
    assert RunConfig.from_mapping(changed.mapping()) == changed


def test_what_a_recipe_says_of_a_method_is_listed_beside_the_other_settings() -> None:
    listed = PLAIN.mapping()
    assert {key: listed[key] for key in PLAIN.recipe.method_options} == PLAIN.recipe.method_options
    assert RunConfig.from_mapping({**listed, "components": 3}).recipe.method_options["components"] == 3


def test_a_run_that_skips_nothing_has_the_mapping_it_had_before_that_could_be_chosen() -> None:
    assert "skip_bad" not in PLAIN.mapping()
    assert replace(PLAIN, skip_bad=True).mapping() == {**PLAIN.mapping(), "skip_bad": True}


def test_keys_of_a_later_version_are_passed_over() -> None:
    assert RunConfig.from_mapping({**PLAIN.mapping(), "added_later": 1}) == PLAIN


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda mapping: mapping.pop("recipe"), SchemaError),
        (lambda mapping: mapping.pop("seed"), SchemaError),
        (lambda mapping: mapping.update(size="x"), SchemaError),
        (lambda mapping: mapping.update(epochs=-1), DsuiError),
    ],
)
def test_a_mapping_that_lacks_something_is_refused(change: Any, error: type[Exception]) -> None:
    mapping = PLAIN.mapping()
    change(mapping)
    with pytest.raises(error):
        RunConfig.from_mapping(mapping)


def test_settings_that_came_later_name_a_run_only_where_they_are_changed() -> None:
    assert not set(ADDED_LATER) & set(PLAIN.mapping())
    changed = replace(PLAIN, recipe=replace(PLAIN.recipe, doubles_weight=0.5)).mapping()
    assert set(ADDED_LATER) & set(changed) == {"doubles_weight"}
    assert RunConfig.from_mapping(changed).recipe.doubles_weight == 0.5
