"""Grids as YAML files.

    title: Errors on digits
    data: digits                  # what stands at the top holds for all runs
    seeds: [0, 1, 2]
    tasks: [misclassification]
    runs:
      - {method: msp, as: [msp, mc-dropout]}
      - {method: dsui, set: {components: [1, 8]}, label: "dsui K {components}"}
    table:
      - {task: misclassification, metrics: auroc, scores: [max_probability, entropy]}

A list stands for each of its values, and several lists for their product; but `tasks`, `foreign`, `epsilons` and
`detectors` list what is evaluated in every run. `known` and `foreign` may differ by data set: {cifar10: [svhn], svhn:
[cifar10]}. `set` changes settings of recipe and method; that of a run adds to the one at the top. `as` predicts with
another method that can use the run's weights, as mc-dropout can use those of msp. `size`, `channels` and `skip_bad:
true` are for folder:PATH, like the options of `dsui train`. A method that cannot be built on one of several backbones
is left out there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import yaml

from dsui.backbones import registry as backbones
from dsui.data.registry import FOLDER
from dsui.detectors import registry as detectors
from dsui.evaluation import TASKS
from dsui.evaluation import paper_tables as paper
from dsui.evaluation.tasks import EPSILONS
from dsui.experiments.grid import Block, Cell, Grid
from dsui.experiments.grid_checks import (
    GridError,
    check_held_out,
    check_images,
    check_labels,
    check_name,
    check_numbers,
    check_outliers,
    check_predictor,
    check_table,
    dataset_shape,
    image_shape,
    unique,
)
from dsui.methods import registry as methods
from dsui.report.metric_formats import METRICS
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import changes, load_recipe, method_options

FIGURES = ("curve", "distributions", "embedding")
NEEDED = object()
DEFAULTS: dict[str, Any] = {
    "data": NEEDED,
    "backbone": "resnet18",
    "method": "dsui",
    "recipe": "paper",
    "seeds": NEEDED,
    "set": {},
    "known": None,
    "held_out": 0.0,
    "outliers": None,
    "size": None,
    "channels": None,
    "skip_bad": False,
    "as": None,
    "tasks": NEEDED,
    "foreign": [],
    "epsilons": list(EPSILONS),
    "detectors": [],
    "label": None,
}
"""The keys of an entry of `runs`, which may also stand at the top."""
TOP = ("title", "runs", "table", "figure", "published", "reference")
BLOCK = ("task", "metrics", "scores")
AT_LEAST_ONE = ("data", "backbone", "method", "recipe", "seeds", "tasks", "held_out")

T = TypeVar("T", str, int, float)


def names() -> tuple[str, ...]:
    """The grids that come with dsui."""
    files = (resources.files("dsui.experiments") / "grids").iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def load_grid(name: str) -> Grid:
    """A grid that comes with dsui, or a file ending in .yaml or .yml."""
    if name.lower().endswith((".yaml", ".yml")):
        try:
            text = Path(name).expanduser().read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise GridError(
                f"cannot read the grid {name}: {getattr(error, 'strerror', 'it is not UTF-8 text')}."
            ) from error
        return parse_grid(text, Path(name).stem)
    check_name("grid", name, names())
    text = (resources.files("dsui.experiments") / "grids" / f"{name}.yaml").read_text(encoding="utf-8")
    return parse_grid(text, name)


def parse_grid(text: str, name: str) -> Grid:
    """The grid that YAML text describes."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise GridError(f"{name} is not valid YAML{where}.") from error
    top = _mapping(content, name, (*TOP, *DEFAULTS))
    entries = _list(top.get("runs", [{}]))
    if not entries:
        raise GridError(f"{name}: runs is empty; name at least one, or leave it out if everything is at the top.")
    shared = {key: value for key, value in top.items() if key in DEFAULTS}
    figure = top.get("figure")
    if figure is not None:
        check_name("figure", figure, FIGURES, name)
    table = tuple(_block(block, f"{name}, table") for block in _list(top.get("table", [])))
    if not table and figure in (None, "curve"):
        raise GridError(f"{name} has no table; write which task, metrics and scores it shows.")
    if (published := top.get("published")) is not None:
        check_name("table of the paper", published, paper.TABLES, name)
    found: dict[tuple[str, str], Cell] = {}
    for number, entry in enumerate(entries, 1):
        where = f"{name}, run {number}"
        own = _mapping(entry, where, tuple(DEFAULTS))
        values = DEFAULTS | shared | own
        if isinstance(shared.get("set"), dict) and isinstance(own.get("set"), dict):
            values["set"] = shared["set"] | own["set"]
        for key, value in values.items():
            if value is NEEDED:
                raise GridError(f"{where} has no {key}; write '{key}: ...' there or at the top.")
        for cell in _cells(values, None if figure == "curve" else figure, where):
            found[cell.key, cell.label] = cell
    cells = tuple(sorted(found.values(), key=lambda cell: cell.config.seed))
    check_labels(cells, name)
    check_table(table, cells, name)
    if (reference := top.get("reference")) is not None:
        check_name("line for the reference", str(reference), unique(cell.label for cell in cells), name)
    return Grid(
        name=name,
        title=str(top.get("title", name)),
        cells=cells,
        table=table,
        figure=figure,
        published=published,
        reference=str(top.get("reference", "dsui")),
    )


def _cells(values: Mapping[str, Any], figure: str | None, where: str) -> Iterator[Cell]:
    """The cells of one entry of `runs`: the product of its lists."""
    for key in AT_LEAST_ONE:
        if not _list(values[key]):
            raise GridError(f"{where}: {key} is empty; name at least one.")
    tasks, epsilons = _tuple(values["tasks"], str, where), _tuple(values["epsilons"], float, where)
    for task in tasks:
        check_name("task", task, TASKS, where)
    check_numbers(epsilons, _tuple(values["seeds"], int, where), where)
    fitted = _tuple(values["detectors"], str, where)
    for detector in fitted:
        check_name("detector", detector, detectors.names(), where)
    if not isinstance(skip_bad := values["skip_bad"], bool):
        raise GridError(f"{where}: skip_bad is {skip_bad!r}; write 'skip_bad: true' or leave it out.")
    possible = False
    for data, backbone, method, recipe in product(
        *(_tuple(values[key], str, where) for key in ("data", "backbone", "method", "recipe"))
    ):
        if not _buildable(method, backbone, where):
            continue
        possible = True
        known, foreign = (_tuple(_of_data(values[key], data, where), str, where) for key in ("known", "foreign"))
        check_images(data, where, foreign=foreign, tasks=tasks, known=known, figure=figure)
        foreign = foreign if "ood" in tasks or figure else ()
        for settings in _settings(values["set"], where):
            overrides, options = method_options(method, settings)
            loaded_recipe = load_recipe(recipe, data, overrides)
            for outliers, split, held_out in product(
                _tuple(values["outliers"], str, where) or (None,),
                known or (None,),
                _tuple(values["held_out"], float, where),
            ):
                check_outliers(method, outliers, where)
                check_held_out(held_out, where)
                channels, size = image_shape(data, values["size"], values["channels"], where)
                reads_folders = any(name and name.startswith(FOLDER) for name in (data, outliers, *foreign))
                config = RunConfig(
                    data=data,
                    backbone=backbone,
                    method=method,
                    seed=0,
                    size=size,
                    channels=channels,
                    recipe=loaded_recipe,
                    options=options,
                    outliers=outliers,
                    known=split,
                    held_out=held_out,
                    skip_bad=reads_folders and skip_bad,
                )
                for seed, predictor in product(
                    _tuple(values["seeds"], int, where), _tuple(values["as"], str, where) or (method,)
                ):
                    check_predictor(method, predictor, where)
                    yield Cell(
                        config=replace(config, seed=seed),
                        predictor=predictor,
                        label=_label(values["label"], {**settings, "method": predictor}, where),
                        settings=changes(config),
                        tasks=tasks,
                        foreign=foreign,
                        epsilons=epsilons if "fgsm" in tasks else (),
                        figure=figure,
                        detectors=fitted,
                    )
    if not possible:
        raise GridError(f"{where}: none of its methods can be built on its backbones; choose others.")


def _buildable(method: str, backbone: str, where: str) -> bool:
    check_name("backbone", backbone, backbones.names(), where)
    possible = methods.find(method).backbones
    return possible is None or backbone in possible


def _label(label: object, values: Mapping[str, object], where: str) -> str:
    if label is None:
        return str(values["method"])
    try:
        return str(label).format(**values)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise GridError(
            f"{where}: label {label!r} names {error}, which `set` does not have; it may name {', '.join(values)}."
        ) from error


def _settings(values: object, where: str) -> Iterator[dict[str, object]]:
    if not isinstance(values, dict):
        raise GridError(f"{where}: set is {values!r}; write it as in 'set: {{epochs: 3}}'.")
    keys = [str(key) for key in values]
    for key, value in values.items():
        if value == []:
            raise GridError(f"{where}: {key} is an empty list; name at least one value, or leave it out.")
    for combination in product(*(value if isinstance(value, list) else [value] for value in values.values())):
        yield dict(zip(keys, combination, strict=True))


def _of_data(value: object, data: str, where: str) -> object:
    if not isinstance(value, dict):
        return value
    for name in value:
        dataset_shape(str(name))
    if data not in value:
        raise GridError(f"{where}: there is no entry for {data}, only for {', '.join(map(str, value))}; add one.")
    return value[data]


def _block(block: object, where: str) -> Block:
    values = _mapping(block, where, BLOCK)
    if missing := [key for key in BLOCK if key not in values]:
        raise GridError(f"{where}: there is no {' and no '.join(missing)}; write task, metrics and scores.")
    for key in BLOCK:
        if not _list(values[key]):
            raise GridError(f"{where}: {key} is empty; name at least one.")
    task, metrics = str(values["task"]), _tuple(values["metrics"], str, where)
    check_name("task", task, ("accuracy", *TASKS), where)
    for metric in metrics:
        check_name("metric", metric, tuple(METRICS), where)
    return Block(task, metrics, _tuple(values["scores"], str, where))


def _mapping(values: object, where: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise GridError(f"{where} is not a mapping; write one 'key: value' on each line.")
    for key in values:
        check_name("key", key, keys, where)
    return {str(key): value for key, value in values.items()}


def _list(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _tuple(value: object, kind: type[T], where: str) -> tuple[T, ...]:
    """One value or a list of them."""
    items = _list(value)
    for item in items:
        if isinstance(item, bool) or not isinstance(item, (int, float) if kind is float else kind):
            wanted = {str: "text", int: "a whole number", float: "a number"}[kind]
            raise GridError(f"{where}: {item!r} should be {wanted}.")
    return tuple(kind(item) for item in items)
