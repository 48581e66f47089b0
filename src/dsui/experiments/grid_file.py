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

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from dsui.backbones import registry as backbones
from dsui.data.registry import FOLDER
from dsui.detectors import registry as detectors
from dsui.evaluation import TASKS
from dsui.evaluation import paper_tables as paper
from dsui.evaluation.tasks import EPSILONS
from dsui.excerpt import excerpt, shorten
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
    image_shape,
    unique,
)
from dsui.experiments.grid_values import (
    as_label,
    as_list,
    as_mapping,
    as_text,
    as_tuple,
    of_data,
    settings_of,
)
from dsui.methods import registry as methods
from dsui.plain_yaml import MOST_CHARACTERS, YamlError, load_yaml
from dsui.regular_file import read_regular
from dsui.report.metric_formats import METRICS
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.runs.training_name import changes

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
TOP = ("title", "runs", "table", "figure", "published", "reference", "means")
BLOCK = ("task", "metrics", "scores")
AT_LEAST_ONE = ("data", "backbone", "method", "recipe", "seeds", "tasks", "held_out")

MOST_CELLS = 5000


def names() -> tuple[str, ...]:
    """The grids that come with dsui."""
    files = (resources.files("dsui.experiments") / "grids").iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def load_grid(name: str) -> Grid:
    """A grid that comes with dsui, or a file ending in .yaml or .yml."""
    if name.lower().endswith((".yaml", ".yml")):
        try:
            text = read_regular(Path(name).expanduser(), 4 * MOST_CHARACTERS).decode()
        except (OSError, ValueError, RuntimeError) as error:
            reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else shorten(error)
            raise GridError(
                f"cannot read the grid {shorten(name)}: {getattr(error, 'strerror', None) or reason}."
            ) from error
        return parse_grid(text, Path(name).stem)
    check_name("grid", name, names())
    text = (resources.files("dsui.experiments") / "grids" / f"{name}.yaml").read_text(encoding="utf-8")
    return parse_grid(text, name)


def parse_grid(text: str, name: str) -> Grid:
    """The grid that YAML text describes."""
    try:
        content = load_yaml(text)
    except YamlError as error:
        raise GridError(f"{name} is not valid YAML: {error}.") from error
    top = as_mapping(content, name, (*TOP, *DEFAULTS))
    entries = as_list(top.get("runs", [{}]))
    if not entries:
        raise GridError(f"{name}: runs is empty; name at least one, or leave it out if everything is at the top.")
    shared = {key: value for key, value in top.items() if key in DEFAULTS}
    figure = top.get("figure")
    if figure is not None:
        check_name("figure", figure, FIGURES, name)
    table = tuple(_block(block, f"{name}, table") for block in as_list(top.get("table", [])))
    if not table and figure in (None, "curve"):
        raise GridError(f"{name} has no table; write which task, metrics and scores it shows.")
    if (published := top.get("published")) is not None:
        check_name("table of the paper", published, paper.TABLES, name)
    found: dict[tuple[str, str], Cell] = {}
    announced = 0
    for number, entry in enumerate(entries, 1):
        where = f"{name}, run {number}"
        own = as_mapping(entry, where, tuple(DEFAULTS))
        values = DEFAULTS | shared | own
        if isinstance(shared.get("set"), dict) and isinstance(own.get("set"), dict):
            values["set"] = shared["set"] | own["set"]
        for key, value in values.items():
            if value is NEEDED:
                raise GridError(f"{where} has no {key}; write '{key}: ...' there or at the top.")
        announced += _count(values)
        if announced > MOST_CELLS:
            raise GridError(f"{where}: its lists make more than {MOST_CELLS:,} runs; divide the grid into several.")
        for cell in _cells(values, None if figure == "curve" else figure, where):
            found[cell.key, cell.label] = cell
    cells = tuple(sorted(found.values(), key=lambda cell: cell.config.seed))
    check_labels(cells, name)
    check_table(table, cells, name)
    if (reference := top.get("reference")) is not None:
        line = as_text(reference, f"{name}, reference")
        check_name("line for the reference", line, unique(cell.label for cell in cells), name)
    return Grid(
        name=name,
        title=as_text(top.get("title", name), f"{name}, title"),
        cells=cells,
        table=table,
        figure=figure,
        published=published,
        reference=as_text(top.get("reference") or "dsui", f"{name}, reference"),
        means=_means(top.get("means", {}), cells, f"{name}, means"),
    )


def _cells(values: Mapping[str, Any], figure: str | None, where: str) -> Iterator[Cell]:
    """The cells of one entry of `runs`: the product of its lists."""
    for key in AT_LEAST_ONE:
        if not as_list(values[key]):
            raise GridError(f"{where}: {key} is empty; name at least one.")
    tasks, epsilons = as_tuple(values["tasks"], str, where), as_tuple(values["epsilons"], float, where)
    for task in tasks:
        check_name("task", task, TASKS, where)
    check_numbers(epsilons, as_tuple(values["seeds"], int, where), where)
    fitted = as_tuple(values["detectors"], str, where)
    for detector in fitted:
        check_name("detector", detector, detectors.names(), where)
    if not isinstance(skip_bad := values["skip_bad"], bool):
        raise GridError(f"{where}: skip_bad is {excerpt(skip_bad)}; write 'skip_bad: true' or leave it out.")
    possible = False
    for data, backbone, method, recipe in product(
        *(as_tuple(values[key], str, where) for key in ("data", "backbone", "method", "recipe"))
    ):
        if not _buildable(method, backbone, where):
            continue
        possible = True
        known, foreign = (as_tuple(of_data(values[key], data, where), str, where) for key in ("known", "foreign"))
        check_images(data, where, foreign=foreign, tasks=tasks, known=known, figure=figure)
        foreign = foreign if "ood" in tasks or figure else ()
        for settings in settings_of(values["set"], where):
            overrides, options = method_options(method, settings)
            loaded_recipe = load_recipe(recipe, data, overrides)
            for outliers, split, held_out in product(
                as_tuple(values["outliers"], str, where) or (None,),
                known or (None,),
                as_tuple(values["held_out"], float, where),
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
                    as_tuple(values["seeds"], int, where), as_tuple(values["as"], str, where) or (method,)
                ):
                    check_predictor(method, predictor, where)
                    yield Cell(
                        config=replace(config, seed=seed),
                        predictor=predictor,
                        label=as_label(values["label"], {**settings, "method": predictor}, where),
                        settings=changes(config),
                        tasks=tasks,
                        foreign=foreign,
                        epsilons=epsilons if "fgsm" in tasks else (),
                        figure=figure,
                        detectors=fitted,
                    )
    if not possible:
        raise GridError(f"{where}: none of its methods can be built on its backbones; choose others.")


def _count(values: Mapping[str, Any]) -> int:
    """The number of cells that the lists of an entry make, or more."""
    settings, known = values["set"], values["known"]
    lists = [as_list(values[key]) for key in (*AT_LEAST_ONE, "outliers", "as")]
    lists += map(as_list, settings.values() if isinstance(settings, dict) else [])
    lists.append(max(map(as_list, known.values()), key=len, default=[]) if isinstance(known, dict) else as_list(known))
    return math.prod(max(1, len(each)) for each in lists)


def _buildable(method: str, backbone: str, where: str) -> bool:
    check_name("backbone", backbone, backbones.names(), where)
    possible = methods.find(method).backbones
    return possible is None or backbone in possible


def _means(value: object, cells: Sequence[Cell], where: str) -> dict[str, tuple[str, ...]]:
    """Groups of foreign sets by name."""
    if not isinstance(value, dict):
        raise GridError(f"{where} is no mapping; write names of groups with lists of foreign sets.")
    foreign = unique(name for cell in cells for name in cell.foreign)
    groups = {as_text(name, where): as_tuple(sets, str, where) for name, sets in value.items()}
    for sets in groups.values():
        for name in sets:
            check_name("foreign set", name, foreign, where)
    return groups


def _block(block: object, where: str) -> Block:
    values = as_mapping(block, where, BLOCK)
    if missing := [key for key in BLOCK if key not in values]:
        raise GridError(f"{where}: there is no {' and no '.join(missing)}; write task, metrics and scores.")
    for key in BLOCK:
        if not as_list(values[key]):
            raise GridError(f"{where}: {key} is empty; name at least one.")
    task, metrics = str(values["task"]), as_tuple(values["metrics"], str, where)
    check_name("task", task, ("accuracy", *TASKS), where)
    for metric in metrics:
        check_name("metric", metric, tuple(METRICS), where)
    return Block(task, metrics, as_tuple(values["scores"], str, where))
