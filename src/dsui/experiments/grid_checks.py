"""Checks of a grid as a whole, made before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from dsui.data.registry import FOLDER, FOLDER_SHAPE, PSEUDO, dataset_info, foreign_split, or_folder
from dsui.data.resize import check_size
from dsui.detectors import registry as detectors
from dsui.errors import DataError, DsuiError
from dsui.evaluation.tasks import STREAMS
from dsui.excerpt import excerpt, shorten
from dsui.experiments.grid import Block, Cell
from dsui.methods import registry as methods
from dsui.score_table import NAMES, detector_scores
from dsui.scores import is_misspelled
from dsui.spelling import nearest

LARGEST_SIDE = 1 << 13
"""Pixels."""
LARGEST_SEED = 2**32 - 1
"""The same as that of `dsui train --seed`."""


class GridError(DsuiError):
    """A grid cannot be found, read or used; the sentence names the key and what is expected."""


def check_name(kind: str, value: object, choices: tuple[str, ...], where: str = "") -> None:
    """Raise if the value is not one of the choices; `where` in the grid it stands."""
    if value not in choices:
        suggestion = nearest(value if isinstance(value, str) else excerpt(value), choices, 0)
        begin = f"{where}: there is no" if where else "there is no"
        every = shorten(", ".join(choices), 300)
        raise GridError(f"{begin} {kind} {excerpt(value)}; did you mean {suggestion}? There are {every}.")


def check_numbers(epsilons: Iterable[float], seeds: Iterable[int], where: str) -> None:
    for epsilon in epsilons:
        if not 0 <= epsilon < math.inf:
            raise GridError(
                f"{where}: {epsilon:g} is not the strength of an attack; write a number from 0 up, as in 0.1."
            )
    for seed in seeds:
        if not 0 <= seed <= LARGEST_SEED:
            raise GridError(f"{where}: {seed} is not a seed; write a whole number from 0 to {LARGEST_SEED}.")


def check_held_out(share: float, where: str) -> None:
    if not 0 <= share < 1:
        raise GridError(
            f"{where}: held_out is {share:g}; write a share of the training images below 1, as in 'held_out: 0.1', or "
            "0 to hold out none."
        )


def check_images(
    data: str,
    where: str,
    *,
    foreign: tuple[str, ...],
    tasks: tuple[str, ...],
    known: tuple[str, ...],
    figure: str | None,
) -> None:
    """Raise if a data set does not exist, or does not fit the tasks or the figure."""
    others = [foreign_split(name)[0] for name in foreign if name not in PSEUDO]
    for name in (data, *others):
        dataset_shape(name)
    if not data.startswith(FOLDER) and "train" not in dataset_info(data).splits:
        raise GridError(f"{where}: {data} has no training images; choose another data set{or_folder(data)}.")
    if data in others:
        raise GridError(f"{where}: {data} is foreign to itself; take it out of `foreign`.")
    if ("ood" in tasks or figure) and not foreign:
        raise GridError(f"{where}: name the foreign sets for {data}, as in 'foreign: [svhn]'.")
    if "open-set" in tasks and not known:
        raise GridError(f"{where}: the open-set task needs known classes, as in 'known: neal-0'.")


def check_outliers(method: str, outliers: str | None, where: str) -> None:
    if outliers is not None:
        dataset_shape(outliers)
        if not methods.find(method).learns_from_outliers:
            raise GridError(f"{where}: {method} does not learn from outliers; give it an entry without them.")


def dataset_shape(data: str) -> tuple[int, int, int]:
    """Channels, height and width of the images of a data set; raises if there is no such set."""
    return FOLDER_SHAPE if data.startswith(FOLDER) else dataset_info(data).shape


def image_shape(data: str, size: object, channels: object, where: str) -> tuple[int, int]:
    """Channels and side of the images of a run; `channels` of the grid is for folder:PATH alone, and `size` makes
    published images smaller."""
    shape = usual_channels, usual_size, _ = dataset_shape(data)
    side = usual_size if size is None else size
    if isinstance(side, bool) or not isinstance(side, int) or not 1 <= side <= LARGEST_SIDE:
        raise GridError(f"{where}: size is {excerpt(side)}; write the side in pixels, as in 'size: 64'.")
    if not data.startswith(FOLDER):
        if channels is not None:
            raise GridError(f"{where}: channels is for folder:PATH; {data} is used as published.")
        with _as_grid_error(where):
            check_size(data, shape, side)
    colours = usual_channels if channels is None else channels
    if not isinstance(colours, int) or isinstance(colours, bool) or colours not in {1, 3}:
        raise GridError(f"{where}: channels is {excerpt(colours)}; write 1 for grey or 3 for colour.")
    return colours, side


@contextmanager
def _as_grid_error(where: str) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise GridError(f"{where}: {error}") from error


def check_predictor(method: str, predictor: str, where: str) -> None:
    """Raise if the method `as` cannot predict with the weights of `method`, whose figures it would show as its own."""
    methods.find(predictor)
    if predictor not in (able := methods.predictors(method)):
        raise GridError(
            f"{where}: {predictor} does not predict with the weights of {method}; `as` may name {' or '.join(able)}, "
            f"and {predictor} needs an entry of its own."
        )


def check_labels(cells: Iterable[Cell], name: str) -> None:
    """Raise if two different runs have one place in the table, which would show their mean."""
    seen: dict[tuple[object, ...], str] = {}
    for cell in cells:
        config = cell.config
        place = (cell.label, config.data, config.backbone, config.known, config.seed)
        if seen.setdefault(place, cell.key) != cell.key:
            raise GridError(f"{name}: two different runs are both {cell.name}; tell them apart with 'label: ...'.")


def check_table(table: Iterable[Block], cells: Iterable[Cell], name: str) -> None:
    """Raise if the table has a column that no run fills."""
    cells = tuple(cells)
    tasks = unique(task for cell in cells for task in cell.tasks)
    fitted = unique(detector for cell in cells for detector in cell.detectors)
    for block in table:
        task = "misclassification" if block.task == "accuracy" else block.task
        if task not in tasks:
            raise GridError(f"{name}: the table shows {block.task}, which needs the task {task}; add it to `tasks`.")
        for score in block.scores:
            if block.task == "accuracy":
                check_name("score of accuracy", score, tuple(STREAMS), name)
            elif (block.task, score) != ("fgsm", "prediction"):
                _check_score(score, fitted, name)


def _check_score(score: str, fitted: Sequence[str], name: str) -> None:
    detector = score.removeprefix("sirc_").replace("_", "-")
    if detector in detectors.names() and score not in NAMES and detector not in fitted:
        raise GridError(f"{name}: the table shows {score}, which needs the detector {detector}; add it to `detectors`.")
    available = (*NAMES, *(each for detector in fitted for each in detector_scores(detector)))
    if is_misspelled(score, available):
        check_name("score", score, available, name)


def unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
