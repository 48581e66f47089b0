"""Which committed rows are figures of the paper, and on which line of its tables each stands.

A row counts if it is of test images and its method was trained with the settings that were frozen for it, those of the
grids in `SETTINGS`; in open-set tests with those of the grid `OPEN_SET`. They are the same for all data sets and both
backbones. Tiny ImageNet counts at 32 x 32 pixels. Rows of any file in `FILES` count, so that the page fills itself as
runs come. DS-UI has a line by its classifier and one by its mixtures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dsui.evaluation.results import ResultRow
from dsui.experiments.grid_file import load_grid
from dsui.report.comparison_lines import ALL_CLASSES, BY_MIXTURES, MIXTURES, latest_rows, relabel, with_mixtures
from dsui.runs.training_name import training_name

FILES = ("cifar10-resnet18-paper", "cifar10-parts", "paper-*")
"""Names of files in results/ that hold rows of the paper's tables and figures; a star stands for any letters."""
SETTINGS = ("cifar10-paper", "paper-sets")
OPEN_SET, ABLATION, PARTS = "open-set", "ablation", "cifar10-parts"

OURS = "DS-UI"
STREAMS = {OURS: "by its classifier", f"{OURS}{MIXTURES}": "by its mixtures"}
"""The two lines of DS-UI; the paper's Max.P. and Ent. are those of the mixtures."""
RIVALS = {
    "msp": "Baseline",
    "msp, no neck": "Baseline without neck",
    "mc-dropout": "MC dropout",
    "dpn": "DPN",
    "rkl": "RKL",
    "sde-net": "SDE-Net",
    "g-openmax": "G-OpenMax",
    "c2ae": "C2AE",
    "gdosr": "GDOSR",
}
"""The paper's rivals in its order, by the labels of the grids; the baseline stands there twice."""
BEYOND = {"msp, sphere": "Softmax on the sphere", "logitnorm": "LogitNorm", "bbb": "Bayes by Backprop"}
"""Comparators that the paper does not have."""
NAMES = {**RIVALS, "dsui": OURS, **BEYOND}
OWN_SCORES = {"G-OpenMax": ("unknown", "energy"), "C2AE": ("unknown", "reconstruction"), "GDOSR": ("max_logit",)}
"""The published scores of the open-set methods, the first that rows have. Their AUROC stands where the paper prints it,
below Max.P."""
USED = {*BY_MIXTURES, *BY_MIXTURES.values(), *(score for scores in OWN_SCORES.values() for score in scores)}
"""The scores that the paper's tables need."""
SMALLER, SIZE = "tiny-imagenet", "size=32"
"""The data set that is made smaller, and how the name of a training says so."""

Training = tuple[str, str]
"""A method and the name of its training, without `SIZE`."""


class RowFile(NamedTuple):
    """A file of rows; a changed file is another one, so that what was read of it may be kept."""

    path: Path
    changed: int
    size: int


RowFiles = tuple[RowFile, ...]


class PaperRows(NamedTuple):
    """`rows`: on the lines of the paper's tables. `unused`: data, method and training of rows that stand nowhere."""

    rows: list[ResultRow]
    unused: list[tuple[str, str, str]]


@cache
def frozen_settings(*grids: str) -> dict[Training, str]:
    """The label of each training of these grids."""
    found: dict[Training, str] = {}
    for name in grids:
        for cell in load_grid(name).cells:
            training = (cell.predictor, _without_size(training_name(cell.config)))
            if found.setdefault(training, cell.label) != cell.label:
                raise ValueError(f"{name} calls {', '.join(training)} both {found[training]} and {cell.label}.")
    return found


def row_files(results: Path) -> RowFiles:
    """The files of `FILES` in this folder as they are now."""
    paths = sorted({path for name in FILES for path in results.glob(f"{name}.jsonl")})
    return tuple(RowFile(path, path.stat().st_mtime_ns, path.stat().st_size) for path in paths)


@cache
def read_paper_rows(files: RowFiles) -> PaperRows:
    """The rows that were trained with the frozen settings."""
    rows, unused = [], dict[tuple[str, str, str], None]()
    elsewhere = {**_labels(ABLATION), **_labels(PARTS)}
    for row in _rows_of_test_images(files):
        settings = frozen_settings(*((OPEN_SET,) if row.task == "open-set" else SETTINGS))
        label = settings.get((row.method, _without_size(row.recipe)), "")
        if label in NAMES and (row.data != SMALLER or SIZE in row.recipe.split(", ")):
            rows.append(relabel(row, NAMES[label]))
        elif (row.method, row.data, row.backbone, row.recipe) not in elsewhere:
            unused[row.data, row.method, row.recipe] = None
    return PaperRows(list(with_mixtures(_by_own_scores(rows))), list(unused))


def read_grid_rows(files: RowFiles, grid: str) -> list[ResultRow]:
    """The rows that cells of this grid stand for, on lines of their labels."""
    labels = _labels(grid)
    found = ((row, labels.get((row.method, row.data, row.backbone, row.recipe))) for row in _rows_of_test_images(files))
    return list(with_mixtures(relabel(row, label) for row, label in found if label is not None))


@cache
def _labels(grid: str) -> dict[tuple[str, str, str, str], str]:
    return {
        (cell.predictor, cell.config.data, cell.config.backbone, training_name(cell.config)): cell.label
        for cell in load_grid(grid).cells
    }


def _without_size(training: str) -> str:
    return ", ".join(part for part in training.split(", ") if part != SIZE)


def _by_own_scores(rows: Sequence[ResultRow]) -> Iterator[ResultRow]:
    """Of the open-set methods only AUROC by their own scores, in the place of Max.P."""
    present = {(row.method, row.score) for row in rows if row.task == "open-set"}
    own = {method: next((s for s in scores if (method, s) in present), "") for method, scores in OWN_SCORES.items()}
    for row in rows:
        if row.task != "open-set" or row.method not in own:
            yield row
        elif row.score == own[row.method] and "auroc" in row.metrics:
            yield replace(row, score="max_probability", metrics={"auroc": row.metrics["auroc"]})


@cache
def _rows_of_test_images(files: RowFiles) -> list[ResultRow]:
    """Of each run the last row of a kind. A run that knows some classes alone counts in open-set tests only."""
    rows = [ResultRow.from_json(line) for path, *_ in files for line in path.read_text().splitlines()]
    return latest_rows(
        row for row in rows if row.score in USED and row.of_test_images and (row.task == "open-set" or _knows_all(row))
    )


def _knows_all(row: ResultRow) -> bool:
    return row.split is None or row.split.startswith(ALL_CLASSES)
