"""Recipes: what ships, how a file and overrides join, and what a mistake is answered with."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsui.backbones.preparation import Preparation
from dsui.data.registry import DATASETS
from dsui.experiments.grid_file import load_grid
from dsui.methods.registry import build, effective_options
from dsui.recipe import Recipe, RecipeError
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe, method_options, names
from dsui.runs.training_name import training_name

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
"""A value of 10^9 parts in 400 bytes."""
Write = Callable[[str], str]


def to_yaml(recipe: Recipe) -> str:
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in recipe.settings().items()}
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a recipe file and give its path."""

    def to(text: str) -> str:
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return to


def test_seven_recipes_ship() -> None:
    assert names() == ["demo", "doubles", "features", "modern", "paper", "photos", "released"]


@pytest.mark.parametrize("data", [*DATASETS, "folder:photos"])
@pytest.mark.parametrize("name", ["demo", "doubles", "features", "modern", "paper", "photos", "released"])
def test_every_recipe_fits_every_data_set_and_comes_back_from_its_yaml(name: str, data: str, write: Write) -> None:
    recipe = load_recipe(name, data)
    assert recipe.name == name
    assert load_recipe(write(to_yaml(recipe)), "another") == recipe
    assert set(recipe.method_options) == OPTIONS


@pytest.mark.parametrize("data", [*DATASETS, "folder:photos"])
@pytest.mark.parametrize("name", ["demo", "doubles", "features", "modern", "paper", "photos", "released"])
@pytest.mark.parametrize("epochs", [1, 3, 1000])
def test_epochs_alone_may_be_overridden(name: str, data: str, epochs: int) -> None:
    assert load_recipe(name, data, {"epochs": epochs}).epochs == epochs


@pytest.mark.parametrize(
    ("data", "epochs", "cycle"), [("cifar100", 100, 70), ("svhn", 40, 30), ("tiny-imagenet", 120, 80)]
)
def test_the_papers_lengths_depend_on_the_data(data: str, epochs: int, cycle: int) -> None:
    for name in ("paper", "released"):
        recipe = load_recipe(name, data)
        assert (recipe.epochs, recipe.cycle) == (epochs, cycle)


def test_digits_are_never_mirrored() -> None:
    assert not any(load_recipe(name, data).flip for name in names() for data in ("digits", "mnist", "svhn"))
    assert load_recipe("paper", "cifar10").flip


def test_released_differs_from_paper_by_what_the_public_code_does() -> None:
    paper, released = (load_recipe(name, "cifar10").settings() for name in ("paper", "released"))
    assert {key for key, value in paper.items() if released[key] != value} == {
        "name", "decay_mixture", "dropout", "released_start", "head", "components", "objective", "density_warm_up",
        "bfloat16",
    }  # fmt: skip


@pytest.mark.parametrize("data", ["cifar10", "svhn", "folder:mine"])
def test_the_recipe_doubles_is_what_the_study_of_doubles_trained(data: str) -> None:
    of_study = next(cell for cell in load_grid("cifar10-doubles").cells if cell.label == "dsui-density, doubles")
    studied = {"epochs": 100, "sam": 0.05, "schedule": "held-cosine", "average": "swa", "swa_start": 0.6}
    found = load_recipe("doubles", data)
    assert replace(found, name="modern") == load_recipe("modern", data, {**studied, "doubles": "turns"})
    assert load_recipe("doubles", "cifar10") == replace(of_study.config.recipe, name="doubles")


def test_a_file_extends_a_recipe_and_gives_what_differs(write: Write) -> None:
    path = write("extends: paper\nbatch: 128\nweight_decay: 5e-4\nmean: [0.4, 0.5, 0.6]\nstd: [1, 1, 1]\nsam: 0\n")
    expected = replace(
        load_recipe("paper", "svhn"), name="mine", batch=128, mean=(0.4, 0.5, 0.6), std=(1.0, 1.0, 1.0), sam=0.0
    )
    found = load_recipe(path, "svhn")
    assert found == expected
    assert isinstance(found.std[0], float)
    assert isinstance(found.sam, float)


def test_what_a_file_says_of_one_data_set_leaves_the_others_as_extended(write: Write) -> None:
    path = write("extends: paper\nbatch: {svhn: 64, 'folder:mine': 32}\n")
    assert [load_recipe(path, data).batch for data in ("svhn", "folder:mine", "cifar10")] == [64, 32, 256]


def test_what_a_recipe_says_of_pretrained_networks_holds_for_them_alone(write: Write) -> None:
    anew, tuned = (load_recipe("photos", "folder:mine", pretrained=each) for each in (False, True))
    assert anew.epochs > tuned.epochs
    assert anew.backbone_rate == 1 > tuned.backbone_rate
    assert anew.smallest_crop < tuned.smallest_crop
    path = write("extends: photos\nbatch: {default: 8, pretrained: 4, 'folder:mine': 2}\nepochs: 7\n")
    assert [load_recipe(path, "folder:other", pretrained=each).batch for each in (False, True)] == [8, 4]
    assert load_recipe(path, "folder:mine", pretrained=True).batch == 2
    assert load_recipe(path, "folder:other", pretrained=True).epochs == 7
    for name in ("demo", "doubles", "features", "modern", "paper", "released"):
        assert load_recipe(name, "folder:mine", pretrained=True) == load_recipe(name, "folder:mine")


def run_on_a_folder(recipe: Recipe, backbone: str = "small", size: int = 32) -> RunConfig:
    return RunConfig(data="folder:mine", backbone=backbone, method="dsui", seed=0, size=size, channels=3, recipe=recipe)


def test_a_run_is_named_by_what_differs_from_the_recipe_for_its_start() -> None:
    anew, tuned = (load_recipe("photos", "folder:mine", pretrained=each) for each in (False, True))
    assert training_name(run_on_a_folder(anew)) == "photos"
    assert training_name(run_on_a_folder(tuned, "timm:resnet50", 224)) == "photos"
    letterbox = Preparation(size=64, edge=64, fit="letterbox").facts()
    shorter = load_recipe("photos", "folder:mine", {"epochs": 30})
    run = replace(run_on_a_folder(shorter, size=64), preparation=letterbox)
    assert training_name(run) == "photos, epochs=30, fit=letterbox, size=64"


def test_settings_that_came_after_hashes_leave_the_names_of_users_recipes(write: Write) -> None:
    """The digits are those that the version before `smallest_crop` and `jitter` gave."""
    recipe = load_recipe(write("extends: demo\nepochs: 5\n"), "folder:mine")
    assert training_name(run_on_a_folder(recipe)) == "mine c4a073"
    changed = replace(recipe, padding=0, jitter=0.1)
    assert training_name(run_on_a_folder(changed)) != "mine c4a073"


def test_overrides_win_and_their_strings_are_yaml(write: Write) -> None:
    path = write("extends: paper\nbatch: 128\n")
    given_values = {"batch": "64", "peak_rate": "1e-3", "rho": "4", "regularizer": "null", "flip": "false", "clip": 1}
    recipe = load_recipe(path, "cifar10", {**given_values, "mean": "[0.1, 0.2]", "std": (1, 2)})
    assert (recipe.batch, recipe.peak_rate, recipe.clip) == (64, 1e-3, 1.0)
    assert (recipe.method_options["rho"], recipe.method_options["regularizer"]) == (4.0, None)
    assert recipe.flip is False
    assert (recipe.mean, recipe.std) == ((0.1, 0.2), (1.0, 2.0))


@pytest.mark.parametrize(
    ("name", "overrides", "key", "length"),
    [
        ("paper", {"epochs": "3"}, "cycle", 2),
        ("paper", {"epochs": 1}, "cycle", 1),
        ("paper", {"epochs": 80}, "cycle", 70),
        ("paper", {"epochs": 30, "cycle": 30}, "cycle", 30),
        ("modern", {"epochs": 5}, "rate_warm_up", 0),
        ("demo", {"epochs": 10}, "rate_warm_up", 3),
        ("released", {"epochs": 1}, "density_warm_up", 1),
        ("mine", {"epochs": 10}, "density_warm_up", 4),
        ("mine", {"epochs": 60}, "density_warm_up", 40),
        ("mine", {"epochs": 10, "density_warm_up": 9}, "density_warm_up", 9),
    ],
)
def test_a_length_shrinks_in_proportion_only_where_it_no_longer_fits(
    name: str, overrides: dict[str, object], key: str, length: int, write: Write
) -> None:
    name = write("extends: paper\ndensity_warm_up: 40\n") if name == "mine" else name
    assert load_recipe(name, "cifar10", overrides).settings()[key] == length


@pytest.mark.parametrize("key", ["cycle", "density_warm_up"])
def test_a_length_given_with_the_epochs_is_not_touched(key: str) -> None:
    with pytest.raises(RecipeError, match=f"{key} is 30; it must be between . and the 20 epochs"):
        load_recipe("paper", "cifar10", {"epochs": 20, key: 30})


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"epoch": 3}, "unknown key 'epoch' in the overrides; did you mean 'epochs'?"),
        ({"drop_out": 3}, "did you mean 'dropout'?"),
        ({"epochs": "many"}, "epochs is 'many' in the overrides; it must be an integer."),
        ({"epochs": 3.0}, "epochs is 3.0 in the overrides; it must be an integer."),
        ({"epochs": True}, "epochs is True in the overrides; it must be an integer."),
        ({"clip": "true"}, "clip is True in the overrides; it must be a number."),
        ({"clip": ""}, "clip is None in the overrides; it must be a number."),
        ({"gamma": 10**400}, "it must be a number."),
        ({"flip": 1}, "flip is 1 in the overrides; it must be true or false."),
        ({"name": 3}, "it must be text."),
        ({"rho": "high"}, "rho is 'high' in the overrides; it must be a number or null."),
        ({"optimizer": "adamw"}, "optimizer is 'adamw' in the overrides; it must be one of adam, sgd."),
        ({"regularizer": "l2"}, "it must be one of reg, reg-paper, kl or null."),
        ({"mean": 0.5}, "mean is 0.5 in the overrides; it must be a list of numbers."),
        ({"std": ["a"]}, "std is ['a'] in the overrides; it must be a list of numbers."),
        ({"epochs": {"svnh": 3}}, "epochs in the overrides: There is no data set 'svnh'; did you mean svhn?"),
        ({"epochs": {"svhn": "x"}}, "epochs is 'x' in the overrides; it must be an integer."),
        ({"mean": "[0.5"}, "the override mean=[0.5 is not valid YAML: "),
    ],
)
def test_a_wrong_override_names_key_value_and_what_is_expected(overrides: dict[str, object], sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("paper", "cifar10", overrides)
    assert sentence in str(caught.value)
    assert str(caught.value).endswith((".", "?"))


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("epochs", [0, -1]),
        ("batch", [1]),
        ("peak_rate", [0, -1, "nan", ".inf"]),
        ("cycle", [0, 101]),
        ("rate_warm_up", [-1, 100]),
        ("momentum", [-0.1, 1]),
        ("weight_decay", [-1, ".inf"]),
        ("dropout", [-0.1, 1]),
        ("padding", [-1]),
        ("mean", [[], [float("nan")]]),
        ("std", [[0], [-1], [0.5, 0.5]]),
        ("components", [0]),
        ("rho", [-1]),
        ("gamma", [-1]),
        ("density_warm_up", [-1, 101]),
        ("ema_decay", [0, 1]),
        ("swa_start", [-0.1, 1]),
        ("sam", [-1]),
        ("clip", [-1]),
    ],
)
def test_a_value_out_of_range_is_named(key: str, wrong: list[object]) -> None:
    for value in wrong:
        with pytest.raises(RecipeError, match=f"recipe 'paper': {key} is .*; it must be"):
            load_recipe("paper", "cifar10", {key: value})


def test_nesterov_needs_momentum() -> None:
    with pytest.raises(RecipeError, match="nesterov is True; it must be false where momentum is 0"):
        load_recipe("modern", "cifar10", {"momentum": 0})


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"average": "none"}, "average is 'none'; it must be swa or ema where the rate is held"),
        ({"swa_start": 0.02}, "swa_start is 0.02; it must be at least 0.025, where a held cosine has risen"),
    ],
)
def test_a_rate_is_held_after_its_rise_and_for_an_average(overrides: dict[str, object], sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        load_recipe("modern", "cifar10", {"schedule": "held-cosine", **overrides})
    assert load_recipe("modern", "cifar10", overrides).schedule == "cosine"


def test_an_unknown_recipe_is_answered_with_the_nearest(write: Write) -> None:
    known = "none of demo, doubles, features, modern, paper, photos, released; did you mean paper?"
    with pytest.raises(RecipeError) as caught:
        load_recipe("Papr", "cifar10")
    assert str(caught.value) == f"recipe 'Papr' is not a .yaml file and {known}"
    path = write("extends: papers\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, "cifar10")
    assert str(caught.value) == f"{path} extends 'papers', which is {known}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not a mapping; write one 'key: value' on each line."),
        ("- paper\n", "is not a mapping"),
        ("epochs: 99999999999999999999\n", "epochs is 99999999999999999999 in "),
        ("epochs: 1000000001\n", "mine.yaml; it must be at most 1,000,000,000."),
        ("epochs: 1000000\n", "epochs is 1000000; it must be between 1 and 100,000"),
        ("epochs: !!bool abc\n", "is not valid YAML: 'abc' is not of the type bool in line 1."),
        ("epochs: !!int ''\n", "is not valid YAML: '' is not of the type int in line 1."),
        (f"epochs: {'[' * 3000}\n", "is not valid YAML: it nests deeper than 20 levels in line 1."),
        (f"epochs: {'[' * 9}{'x, ' * 999}{']' * 9}\n", "epochs is [[[[[...]]]]] in "),
        (BOMB, "is not valid YAML: it has more than 20,000 values"),
        (f"? {'k' * 9999}\n: 1\n", "unknown key 'kkkkkkkkkkkkkkkkkkkk"),
        (f"name: {'n' * 999}\n", "it may have 200 characters."),
        (
            "extends: [paper]\n",
            "extends ['paper']; name one of demo, doubles, features, modern, paper, photos, released.",
        ),
        ("extends: paper\nbatch: [1\n", "is not valid YAML: expected ',' or ']', but got '<stream end>' in line 3."),
        ("extends: paper\nname: a\x07b\n", "is not valid YAML: special characters are not allowed in line 2."),
        ("name: !!timestamp 2021-13-01\n", "is not valid YAML: the tag 'tag:yaml.org,2002:timestamp' is not used here"),
        ("extends: paper\nbatchsize: 3\n", "mine.yaml; did you mean 'batch'?"),
        ("extends: paper\non: 3\n", "unknown key 'True' in "),
        ("extends: paper\nbatch: large\n", "mine.yaml; it must be an integer."),
    ],
)
def test_a_file_that_cannot_be_used_says_why(text: str, sentence: str, write: Write) -> None:
    path = write(text)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, "cifar10")
    assert sentence in str(caught.value)
    assert len(str(caught.value)) < 600
    assert path in str(caught.value) or "recipe 'mine'" in str(caught.value)


def test_what_a_file_that_extends_nothing_leaves_out_is_the_papers(write: Write) -> None:
    path = write("batch: 128\nepochs: {svhn: 80}\n")
    for data, epochs in (("svhn", 80), ("tiny-imagenet", 120)):
        assert load_recipe(path, data) == replace(load_recipe("paper", data), name="mine", batch=128, epochs=epochs)


def test_a_recipe_without_a_file_is_the_papers() -> None:
    """So that a run made before a setting existed is read as if it had been trained with the paper's value."""
    paper = load_recipe("paper", "cifar10")
    assert Recipe(method_options=paper.method_options) == paper
    assert effective_options("dsui", Recipe(), {}) == effective_options("dsui", paper, {})


OPTIONS = {
    "head", "components", "objective", "rho", "gamma", "regularizer", "density_warm_up", "initialize", "decay_mixture"
}  # fmt: skip
"""Those that recipes give to dsui."""


def test_a_method_takes_the_options_it_has_over_its_defaults_and_below_what_is_given(write: Write) -> None:
    recipe = load_recipe(write("extends: paper\nobjective: posterior\nkappa: 16\nsamples: 3\n"), "cifar10")
    for method in ("dsui", "dsui-density"):
        options = effective_options(method, recipe, {"components": 2})
        assert (options["objective"], options["kappa"], options["components"]) == ("posterior", 16.0, 2)
        assert "samples" not in options
    assert effective_options("mc-dropout", recipe, {}) == {"samples": 3}
    assert not OPTIONS & effective_options("msp", recipe, {}).keys()


def test_members_of_an_ensemble_get_the_options_of_the_recipe_and_of_set() -> None:
    overrides, options = method_options("ensemble", {"components": "3", "members": 2, "member": "dsui"})
    assert options == {"members": 2, "member": "dsui"}
    built = build("ensemble", "small", 1, 10, load_recipe("demo", "digits", overrides), options)
    assert {tuple(means.shape) for name, means in built.named_parameters() if name.endswith("means")} == {(10, 3, 128)}


@pytest.mark.parametrize("recipe", ["paper", "released"])
def test_a_recipe_with_options_of_dsui_serves_other_methods(recipe: str) -> None:
    overrides, options = method_options("msp", {"components": 3, "objective": "literal"})
    build("msp", "small", 1, 10, load_recipe(recipe, "digits", overrides), options)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"cannot read the recipe .*none\.yml: No such file or directory\."):
        load_recipe(str(tmp_path / "none.yml"), "cifar10")
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(RecipeError, match=r"cannot read the recipe .*pipe\.yaml: it is a pipe and not a file\."):
        load_recipe(str(tmp_path / "pipe.yaml"), "cifar10")
    (tmp_path / "latin.yaml").write_bytes("name: für".encode("latin-1"))
    with pytest.raises(RecipeError, match=r"latin\.yaml: it is not UTF-8 text\."):
        load_recipe(str(tmp_path / "latin.yaml"), "cifar10")


positive = st.floats(1e-12, 1e12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(
    st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=8),
    positive,
    positive,
    st.lists(st.tuples(st.floats(-9, 9), positive), min_size=1, max_size=4),
)
def test_any_recipe_comes_back_from_its_yaml(
    write: Write, name: str, rate: float, rho: float, channels: list[tuple[float, float]]
) -> None:
    mean, std = zip(*channels, strict=True)
    paper = load_recipe("paper", "svhn")
    options = {**paper.method_options, "rho": rho}
    recipe = replace(paper, name=name, peak_rate=rate, mean=mean, std=std, method_options=options)
    assert load_recipe(write(to_yaml(recipe)), "svhn") == recipe


def test_a_training_is_called_by_its_recipe_and_by_what_was_changed_in_it() -> None:
    def name(settings: dict[str, object], outliers: str | None = None) -> str:
        overrides, options = method_options("dsui", settings)
        return training_name(
            RunConfig(
                data="cifar10",
                backbone="resnet18",
                method="dsui",
                seed=0,
                size=32,
                channels=3,
                recipe=load_recipe("paper", "cifar10", overrides),
                options=options,
                outliers=outliers,
            )
        )

    assert name({}) == "paper"
    assert name({"neck": False, "components": 1, "rho": 0}) == "paper, components=1, neck=False, rho=0"
    assert name({"epochs": 50}) == "paper, epochs=50"  # and a cycle of 35, which goes without saying
    assert name({"epochs": 50, "cycle": 20, "kappa": 16.0}) == "paper, cycle=20, epochs=50, kappa=16"
    assert name({"components": 8}, "svhn") == "paper, outliers=svhn"


def test_recipes_of_ones_own_are_told_apart_by_what_they_say(write: Write) -> None:
    def name(text: str, **settings: object) -> str:
        recipe = load_recipe(write(f"extends: demo\n{text}"), "digits", settings)
        return training_name(
            RunConfig(
                data="digits",
                backbone="small",
                method="msp",
                seed=0,
                size=8,
                channels=1,
                recipe=replace(recipe, name="mine"),
            )
        )

    assert name("epochs: 3").startswith("mine ")
    assert name("epochs: 3") == name("", epochs=3)
    assert name("", components=2) == name("components: 2") != name("")
    assert len({name("epochs: 3"), name("epochs: 4"), name("epochs: 3", peak_rate=1e-6)}) == 3


def test_images_of_ones_own_of_another_shape_are_another_training() -> None:
    def name(size: int, channels: int, data: str = "folder:mine") -> str:
        recipe = load_recipe("paper", data)
        return training_name(
            RunConfig(data=data, backbone="small", method="msp", seed=0, size=size, channels=channels, recipe=recipe)
        )

    assert name(32, 3) == name(8, 1, "digits") == "paper"
    assert name(64, 3) == "paper, size=64"
    assert name(16, 1) == "paper, channels=1, size=16"


def test_a_mistyped_extends_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("extnds: paper\n")
    with pytest.raises(RecipeError, match=r"unknown key 'extnds' in .*; did you mean 'extends'"):
        load_recipe(str(tmp_path / "own.yaml"), "cifar10")


@pytest.mark.parametrize("value", ["2", "true", "null", "'1'", "1.0"])
def test_a_number_of_copies_that_is_none_is_told(value: str) -> None:
    with pytest.raises(RecipeError, match=r"doubles_copies is .* in the overrides; it must be one of 1, 3"):
        load_recipe("paper", "digits", {"doubles_copies": value})
    assert load_recipe("paper", "digits", {"doubles_copies": "3"}).doubles_copies == 3
