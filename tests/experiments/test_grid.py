"""Grids from YAML: lists multiply, mistakes name themselves, and a cell is identified by its configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from dsui.errors import DsuiError
from dsui.experiments.grid import Cell, Grid
from dsui.experiments.grid_checks import GridError
from dsui.experiments.grid_file import load_grid, names, parse_grid
from dsui.methods import registry as methods
from dsui.runs.recipe_file import load_recipe
from dsui.score_table import NAMES
from dsui.scores import all_scores, reference
from tests.support.tiny_grid import TINY, rkl_reads_msp  # noqa: F401


def with_line(line: str) -> str:
    return TINY + line + "\n"


def test_lists_mean_their_product_and_every_seed_comes_before_the_next() -> None:
    grid = parse_grid(
        TINY.replace("[0]", "[0, 1]").replace("{epochs: 2}", "{epochs: [2, 3]}") + 'label: "{method} {epochs}"', "t"
    )
    assert len(grid.cells) == 3 * 2 * 2
    assert [cell.config.seed for cell in grid.cells] == [0] * 6 + [1] * 6
    assert {cell.label for cell in grid.cells} == {f"{m} {e}" for m in ("msp", "rkl", "dsui") for e in (2, 3)}


def test_an_entry_of_its_own_goes_before_what_stands_at_the_top() -> None:
    grid = parse_grid(TINY.replace("method: dsui}", "method: dsui, seeds: [7], set: {components: 2}}"), "t")
    (cell,) = [cell for cell in grid.cells if cell.predictor == "dsui"]
    assert (cell.config.seed, cell.config.recipe.method_options["components"]) == (7, 2)


def test_settings_of_an_entry_add_to_those_at_the_top_and_go_before_them() -> None:
    grid = parse_grid(TINY.replace("method: dsui}", "method: dsui, set: {components: 2}}"), "t")
    recipes = [cell.config.recipe for cell in dsui_cells(grid)]
    assert {(recipe.epochs, recipe.method_options["components"]) for recipe in recipes} == {(2, 2)}
    grid = parse_grid(TINY.replace("method: dsui}", "method: dsui, set: {epochs: 5}}"), "t")
    assert {cell.config.recipe.epochs for cell in dsui_cells(grid)} == {5}


def dsui_cells(grid: Grid) -> list[Cell]:
    return [cell for cell in grid.cells if cell.predictor == "dsui"]


def test_a_method_is_left_out_on_backbones_it_cannot_be_built_on() -> None:
    text = "{data: cifar10, seeds: [0], tasks: [noise], method: sde-net, backbone: %s, figure: curve, table: %s}"
    table = "[{task: noise, metrics: auroc, scores: entropy}]"
    grid = parse_grid(text % ("[vgg16, resnet18]", table), "t")
    assert [cell.config.backbone for cell in grid.cells] == ["resnet18"]
    with pytest.raises(GridError, match="none of its methods can be built"):
        parse_grid(text % ("vgg16", table), "t")


def test_identity_is_the_configuration_of_run_and_evaluation_alone() -> None:
    def keys(text: str) -> list[str]:
        return [cell.key for cell in parse_grid(text, "t").cells]

    plain = keys(TINY)
    assert keys(TINY.replace("title: Tiny", "title: Other")) == plain
    assert keys(with_line("epsilons: [0.5]")) == plain  # nothing is attacked
    assert keys(with_line("foreign: [photos]")) == plain  # nor compared with photographs
    assert keys(TINY.replace("dsui}", "dsui, label: ours}")) == plain
    assert keys(TINY.replace("dsui}", "dsui, set: {epochs: 3}}"))[:2] == plain[:2]
    for changed in ("[misclassification, noise]", "[misclassification, fgsm]"):
        assert not set(keys(TINY.replace("[misclassification]", changed))) & set(plain)


def test_skipping_bad_files_is_part_of_a_run_on_own_images_alone() -> None:
    own = TINY.replace("data: digits", "data: [digits, 'folder:mine']")
    plain, skipping = parse_grid(own, "g").cells, parse_grid(own + "skip_bad: true\n", "g").cells
    for before, after in zip(plain, skipping, strict=True):
        assert after.config.skip_bad == (after.config.data == "folder:mine")
        assert (before.key == after.key) == (before.run_name == after.run_name) == (after.config.data == "digits")
    assert parse_grid(own + "skip_bad: false\n", "g").cells == plain
    with pytest.raises(GridError, match="skip_bad is 'yes please'; write 'skip_bad: true'"):
        parse_grid(own + "skip_bad: yes please\n", "g")


def test_own_images_are_read_as_the_grid_says_and_published_ones_as_they_are() -> None:
    own = TINY.replace("data: digits", "data: 'folder:mine'")
    usual, grey = parse_grid(own, "g").cells, parse_grid(own + "size: 8\nchannels: 1\n", "g").cells
    assert {(cell.config.channels, cell.config.size) for cell in usual} == {(3, 32)}
    assert {(cell.config.channels, cell.config.size) for cell in grey} == {(1, 8)}
    assert {(cell.config.channels, cell.config.size) for cell in parse_grid(own + "size: 64\n", "g").cells} == {(3, 64)}
    assert not {cell.key for cell in usual} & {cell.key for cell in grey}
    assert not {cell.run_name for cell in usual} & {cell.run_name for cell in grey}


@pytest.mark.parametrize(
    ("data", "line", "why"),
    [
        ("digits", "size: 16", "the images of digits have 8x8 pixels, and size 16 would enlarge them; choose 1 to 8"),
        ("digits", "channels: 1", "channels is for folder:PATH; digits is used as published"),
        ("digits", "size: true", "size is True; write the side in pixels"),
        ("'folder:mine'", "size: 0", "size is 0; write the side in pixels"),
        ("'folder:mine'", "size: large", "size is 'large'; write the side in pixels"),
        ("'folder:mine'", "channels: 4", "channels is 4; write 1 for grey or 3 for colour"),
        ("'folder:mine'", "channels: [1, 3]", r"channels is \[1, 3\]; write 1 for grey"),
    ],
)
def test_a_shape_that_cannot_be_is_told(data: str, line: str, why: str) -> None:
    with pytest.raises(GridError, match=why):
        parse_grid(TINY.replace("data: digits", f"data: {data}") + f"{line}\n", "g")


def test_two_figures_of_one_run_are_two_cells() -> None:
    (distributions,) = load_grid("distributions").cells
    (embedding,) = [cell for cell in load_grid("tsne").cells if cell.predictor == "dsui"]
    assert distributions.run_name == embedding.run_name
    assert distributions.key != embedding.key


def test_settings_that_change_nothing_lead_to_the_same_run() -> None:
    same = TINY.replace("{epochs: 2}", "{epochs: 2, batch: 64}")
    assert [cell.run_name for cell in parse_grid(same, "t").cells] == [
        cell.run_name for cell in parse_grid(TINY, "t").cells
    ]


MANY = "[" + ", ".join(f"v{number}" for number in range(100)) + "]"


def test_a_label_names_settings() -> None:
    text = TINY.replace(
        "{method: dsui}", "{method: dsui, set: {rho: 0.5, neck: false}, label: '{method} {rho} {{{neck}}}'}"
    )
    assert parse_grid(text, "t").cells[-1].label == "dsui 0.5 {False}"
    assert parse_grid(TINY.replace("dsui}", "dsui, label: 8}"), "t").cells[-1].label == "8"


def test_a_pipe_is_not_a_grid(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.yaml")
    with pytest.raises(GridError, match=r"cannot read the grid .*mine\.yaml: it is a pipe and not a file\.$"):
        load_grid(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (with_line("sedes: [1]"), ["'sedes'", "did you mean seeds?"]),
        (TINY.replace("method: dsui", "mehtod: dsui"), ["run 2", "'mehtod'", "did you mean method?"]),
        (TINY.replace("metrics: auroc", "metrisc: auroc"), ["table", "'metrisc'", "did you mean metrics?"]),
        (TINY.replace("epochs: 2", "epochz: 2"), ["'epochz'", "'epochs'"]),
        (TINY.replace("method: dsui", "method: dsiu"), ["'dsiu'", "did you mean dsui?"]),
        (TINY.replace("small", "smal"), ["backbone 'smal'", "did you mean small?"]),
        (TINY.replace("data: digits", "data: digist"), ["'digist'", "digits"]),
        (TINY.replace("data: digits", "data: photos"), ["photos has no training images"]),
        (TINY.replace("recipe: demo", "recipe: dmeo"), ["'dmeo'", "demo"]),
        (
            TINY.replace("[misclassification]", "[misclasification]"),
            ["task 'misclasification'", "mean misclassification?"],
        ),
        (TINY.replace("metrics: auroc", "metrics: aurok"), ["metric 'aurok'", "did you mean auroc?"]),
        (TINY.replace("[0]", "[one]"), ["'one'", "whole number"]),
        (TINY.replace("seeds: [0]\n", ""), ["has no seeds"]),
        (with_line("figure: curves"), ["figure 'curves'", "did you mean curve?"]),
        (with_line("published: table5"), ["table of the paper 'table5'", "did you mean table4?"]),
        (TINY.replace("[misclassification]", "[ood]"), ["name the foreign sets for digits"]),
        (TINY.replace("[misclassification]", "[ood]") + "foreign: [digits]", ["digits is foreign to itself"]),
        (
            TINY.replace("[misclassification]", "[ood]") + "foreign: {svhn: [photos]}",
            ["there is no entry for digits, only for svhn"],
        ),
        (TINY.replace("[misclassification]", "[open-set]"), ["open-set task needs known classes"]),
        (with_line("outliers: mnist"), ["msp does not learn from outliers"]),
        (with_line('label: "{epoch}"'), ["label '{epoch}'", "epochs"]),
        (TINY.replace("{method: dsui}", "{method: dsui, set: {epochs: [2, 3]}}"), ["two different runs", "label"]),
        (TINY[: TINY.index("table:")], ["has no table"]),
        (with_line("set: 3"), ["set is 3"]),
        (with_line("detectors: [kn]"), ["detector 'kn'", "did you mean knn?"]),
        (with_line("held_out: 1.5"), ["held_out is 1.5", "below 1"]),
        (with_line("held_out: [0, -0.1]"), ["held_out is -0.1"]),
        (TINY.replace("seeds: [0]", "seeds: []"), ["seeds is empty"]),
        (TINY.replace("seeds: [0]", "seeds: [-1]"), ["-1 is not a seed"]),
        (with_line("epsilons: [.nan]"), ["nan is not the strength of an attack"]),
        (TINY.replace("metrics: auroc", "metrics: []"), ["metrics is empty"]),
        (TINY.replace("{method: dsui}", "{method: dsui, set: {epochs: []}}"), ["epochs is an empty list"]),
        (with_line('label: "{method.foo}"'), ["label '{method.foo}'"]),
        (TINY.replace("[misclassification]", "[]"), ["tasks is empty"]),
        (TINY.replace("data: digits", "data: []"), ["data is empty"]),
        ("runs: []\ntable: {task: noise, metrics: auroc, scores: entropy}", ["runs is empty"]),
        (TINY.replace("[misclassification]", "[noise]"), ["shows accuracy, which needs the task misclassification"]),
        (TINY.replace("task: misclassification", "task: noise"), ["shows noise", "add it to `tasks`"]),
        (with_line("reference: dsui, K 8"), ["line for the reference 'dsui, K 8'", "did you mean dsui?"]),
        (TINY.replace("max_probability", "max_probabilty"), ["no score", "did you mean max_probability?"]),
        (TINY.replace("max_probability", "knn"), ["needs the detector knn"]),
        (TINY.replace("max_probability", "sirc_she"), ["sirc_she", "needs the detector she"]),
        (TINY.replace("scores: prediction", "scores: predicton"), ["score of accuracy", "did you mean prediction?"]),
        (with_line('label: "{epochs!r:>1000000000}"'), ["names 'epochs!r:>1000000000'", "may name epochs, method"]),
        (with_line('label: "{method:>1000000000}"'), ["names 'method:>1000000000'"]),
        (with_line('label: "{method.__class__}"'), ["names 'method.__class__'"]),
        (with_line('label: "{0}"'), ["label '{0}' names '0'"]),
        (with_line('label: "{"'), ["label '{' is not one", "names in braces"]),
        (with_line(f"label: {'x' * 301}"), ["has 301 characters, more than 300"]),
        (with_line(f"label: '{'{method}' * 100}'"), ["characters, more than 300"]),
        (with_line("label: [a]"), ["label is ['a']; write a text"]),
        (with_line("title: {a: 1}"), ["title is {'a': 1}; write a text"]),
        (with_line(f"foreign: [{'x' * 5000}]"), ["has 5,000 characters, more than 300"]),
        (with_line("known: !!bool abc"), ["not valid YAML: 'abc' is not of the type bool"]),
        (with_line(f"known: {'[' * 3000}"), ["not valid YAML: it nests deeper than 20 levels"]),
        (TINY.replace("{epochs: 2}", "{epochs: 99999999999999999999}"), ["epochs is 99999999999999999999"]),
        (TINY.replace("{epochs: 2}", "{epochs: 1000000}"), ["epochs is 1000000; it must be between 1 and 100,000"]),
        (TINY.replace("seeds: [0]", f"seeds: {list(range(5001))}"), ["make more than 5,000 runs; divide the grid"]),
        (TINY.replace("{method: dsui}", f"{{method: {MANY}, backbone: {MANY}, seeds: {MANY}}}"), ["more than 5,000"]),
        (TINY.replace("{method: dsui}", f"{{set: {{a: {MANY}, b: {MANY}, c: {MANY}}}}}"), ["more than 5,000 runs"]),
        ("- 1", ["not a mapping"]),
        ("title: [", ["not valid YAML", "line 1"]),
    ],
)
def test_a_mistake_names_itself_and_what_was_meant(text: str, words: list[str]) -> None:
    with pytest.raises(DsuiError) as raised:
        parse_grid(text, "mine")
    for word in words:
        assert word in str(raised.value)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("predictor", ["dpn", "logitnorm", "dsui"])
def test_only_a_method_that_trains_alike_predicts_with_the_weights_of_another(predictor: str) -> None:
    with pytest.raises(GridError, match=f"{predictor} does not predict with the weights of msp; `as` may name msp or"):
        parse_grid(TINY.replace("[msp, rkl]", f"[msp, {predictor}]"), "t")
    with pytest.raises(GridError, match="mc-dropout does not predict with the weights of dsui"):
        parse_grid(TINY.replace("method: dsui", "method: dsui, as: mc-dropout"), "t")
    assert parse_grid(TINY.replace("[msp, rkl]", "mc-dropout"), "t").cells[0].predictor == "mc-dropout"


@pytest.mark.parametrize("method", methods.names())
def test_a_table_may_show_every_score_that_a_method_has(method: str) -> None:
    backbone = (methods.find(method).backbones or ("small",))[0]
    recipe = load_recipe("demo", "digits", {"neck": True, "dropout": 0.2})
    torch.manual_seed(0)
    built = methods.build(method, backbone, 1, 10, recipe).eval()
    with torch.no_grad():
        outputs = built.predict(torch.rand(4, 1, 8, 8))
    scores = all_scores(outputs, reference([outputs]))
    shown = parse_grid(TINY.replace("scores: max_probability", f"scores: [{', '.join(scores)}]"), "t").table[1]
    assert shown.scores == tuple(scores)
    assert set(scores) <= {*NAMES, *outputs.own}


def test_a_table_may_show_the_detectors_of_its_runs() -> None:
    named = TINY.replace("scores: max_probability", "scores: [knn, relative_mahalanobis]")
    assert parse_grid(named + "detectors: [knn, relative-mahalanobis]", "t").table[1].scores[0] == "knn"


def test_a_grid_is_found_by_name_or_by_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(TINY, encoding="utf-8")
    assert load_grid(str(tmp_path / "mine.yaml")).name == "mine"
    with pytest.raises(GridError, match="did you mean accuracy"):
        load_grid("acuracy")
    with pytest.raises(GridError, match=r"cannot read the grid .*No such file"):
        load_grid(str(tmp_path / "absent.yaml"))


def test_the_grid_of_the_guide_is_a_grid() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    grid = parse_grid(guide.split("```yaml\n")[1].split("```")[0], "guide")
    assert {cell.label for cell in grid.cells} == {"msp", "mc-dropout", "dsui, K 1", "dsui, K 8"}
    for name in names():
        runs, cells = len({cell.run_name for cell in load_grid(name).cells}), len(load_grid(name).cells)
        assert any(
            line.startswith(f"| `{name}` |") and line.endswith(f"| {cells} | {runs} |") for line in guide.splitlines()
        )


def test_a_cell_names_the_data_it_needs() -> None:
    (cell,) = load_grid("distributions").cells
    assert cell.required_data == {"cifar10": ("train", "test"), "svhn": ("test",)}
    text = TINY.replace("method: msp, as: [msp, rkl]", "method: rkl") + "outliers: null"
    with_outliers = parse_grid(text.replace("method: rkl", "method: rkl, outliers: mnist"), "t").cells[0]
    assert with_outliers.required_data == {"digits": ("train", "test"), "mnist": ("train",)}
