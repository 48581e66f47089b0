"""What can be wrong with a grid as a whole, told before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dsui.data.registry import FOLDER, FOLDER_SHAPE, PSEUDO, dataset_info, or_folder
from dsui.detectors import registry as detectors
from dsui.errors import DsuiError
from dsui.evaluation.tasks import STREAMS
from dsui.experiments.grid import Block, Cell
from dsui.methods import registry as methods
from dsui.scores import COMMON, detector_scores, is_misspelled
from dsui.spelling import nearest

LARGEST_SEED = 2**32 - 1
"""As of `dsui train --seed`."""


class GridError(DsuiError):
    """A grid cannot be found, read or used; the sentence names the key and what is expected."""


def check_name(kind: str, value: object, known: tuple[str, ...], begin: str) -> None:
    if value not in known:
        suggestion = nearest(str(value), known, 0)
        raise GridError(f"{begin} {kind} {value!r}; did you mean {suggestion}? There are {', '.join(known)}.")


def check_numbers(epsilons: Iterable[float], seeds: Iterable[int], where: str) -> None:
    for epsilon in epsilons:
        if not 0 <= epsilon < math.inf:
            raise GridError(f"{where}: {epsilon:g} is no strength of an attack; write numbers from 0 on, as in 0.1.")
    for seed in seeds:
        if not 0 <= seed <= LARGEST_SEED:
            raise GridError(f"{where}: {seed} is no seed; write a whole number from 0 to {LARGEST_SEED}.")


def check_held_out(share: float, where: str) -> None:
    if not 0 <= share < 1:
        raise GridError(
            f"{where}: held_out is {share:g}; write a share of the training images below 1, as in 'held_out: 0.1', or "
            "0 to hold out none."
        )


def check_images(
    data: str, foreign: tuple[str, ...], tasks: tuple[str, ...], known: tuple[str, ...], figure: str | None, where: str
) -> None:
    for name in (data, *(name for name in foreign if name not in PSEUDO)):
        shape(name)
    if not data.startswith(FOLDER) and "train" not in dataset_info(data).splits:
        raise GridError(f"{where}: {data} has no training images; choose another data set{or_folder(data)}.")
    if data in foreign:
        raise GridError(f"{where}: {data} is foreign to itself; take it out of `foreign`.")
    if ("ood" in tasks or figure) and not foreign:
        raise GridError(f"{where}: name the foreign sets for {data}, as in 'foreign: [svhn]'.")
    if "open-set" in tasks and not known:
        raise GridError(f"{where}: the open-set task needs known classes, as in 'known: neal-0'.")


def check_outliers(method: str, outliers: str | None, where: str) -> None:
    if outliers is not None:
        shape(outliers)
        if not methods.find(method).learns_from_outliers:
            raise GridError(f"{where}: {method} does not learn from outliers; give it an entry without them.")


def shape(data: str) -> tuple[int, int, int]:
    """Channels, height and width of a data set's images, or a sentence where there is no such set."""
    return FOLDER_SHAPE if data.startswith(FOLDER) else dataset_info(data).shape


def own_shape(data: str, size: object, channels: object, where: str) -> tuple[int, int]:
    """Channels and side of a run's images; `size` and `channels` are what the grid says of own ones."""
    usual_channels, usual_size, _ = shape(data)
    if size is None and channels is None:
        return usual_channels, usual_size
    if not data.startswith(FOLDER):
        raise GridError(f"{where}: size and channels are for folder:PATH; {data} is as it was published.")
    side = usual_size if size is None else size
    if not isinstance(side, int) or side < 1:
        raise GridError(f"{where}: size is {side!r}; write the side in pixels, as in 'size: 64'.")
    colours = usual_channels if channels is None else channels
    if not isinstance(colours, int) or colours not in {1, 3}:
        raise GridError(f"{where}: channels is {colours!r}; write 1 for grey or 3 for colour.")
    return colours, side


def check_predictor(method: str, predictor: str, where: str) -> None:
    """Another method would print the figures of this one's network under its own name."""
    methods.find(predictor)
    if predictor not in (able := methods.predictors(method)):
        raise GridError(
            f"{where}: {predictor} does not predict with the weights of {method}; `as` may name {' or '.join(able)}, "
            f"and {predictor} needs an entry of its own."
        )


def check_labels(cells: Iterable[Cell], name: str) -> None:
    """Two different runs in one place of the table would be averaged."""
    seen: dict[tuple[object, ...], str] = {}
    for cell in cells:
        config = cell.config
        place = (cell.label, config.data, config.backbone, config.known, config.seed)
        if seen.setdefault(place, cell.key) != cell.key:
            raise GridError(f"{name}: two different runs are both {cell.name}; tell them apart with 'label: ...'.")


def check_table(table: Iterable[Block], cells: Iterable[Cell], name: str) -> None:
    """A column that no run can fill would be found out after all of them are trained."""
    cells = tuple(cells)
    tasks = unique(task for cell in cells for task in cell.tasks)
    fitted = unique(detector for cell in cells for detector in cell.detectors)
    for block in table:
        asked = "misclassification" if block.task == "accuracy" else block.task
        if asked not in tasks:
            raise GridError(f"{name}: the table shows {block.task}, which needs the task {asked}; add it to `tasks`.")
        for score in block.scores:
            if block.task == "accuracy":
                check_name("score of accuracy", score, tuple(STREAMS), f"{name}: there is no")
            elif (block.task, score) != ("fgsm", "prediction"):
                _check_score(score, fitted, name)


def _check_score(score: str, fitted: Sequence[str], name: str) -> None:
    detector = score.removeprefix("sirc_").replace("_", "-")
    if detector in detectors.names() and score not in COMMON and detector not in fitted:
        raise GridError(f"{name}: the table shows {score}, which needs the detector {detector}; add it to `detectors`.")
    there = (*COMMON, *(each for detector in fitted for each in detector_scores(detector)))
    if is_misspelled(score, there):
        check_name("score", score, there, f"{name}: there is no")


def unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
