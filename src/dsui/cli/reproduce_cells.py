"""The cells of a study that a user selects, and their states."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dsui.cli.arguments import check_name, parse_names
from dsui.cli.errors import UsageError
from dsui.data.registry import FOLDER, folder_path
from dsui.errors import DsuiError
from dsui.experiments.grid import Cell, Grid
from dsui.experiments.study import Job, Study

SELECTORS: dict[str, Callable[[Cell], str]] = {
    "method": lambda cell: cell.predictor,
    "data": lambda cell: cell.config.data,
    "backbone": lambda cell: cell.config.backbone,
    "recipe": lambda cell: cell.config.recipe.name,
    "known": lambda cell: cell.config.known or "none",
    "label": lambda cell: cell.label,
}
"""The keys of --only."""


class CellState(NamedTuple):
    """`trains`: whether this cell's run, which later cells may share, is still to be trained; `seconds`: how long that
    takes, None if unknown."""

    name: str
    state: str
    detail: str
    trains: bool
    seconds: float | None


def select_cells(grid: Grid, only: Sequence[str], seeds: str) -> list[Cell]:
    """The cells that match --only and --seeds."""
    cells = list(grid.cells)
    for condition in only:
        key, sign, values = condition.partition("=")
        if not sign:
            raise UsageError(
                f"--only {condition} has no value; write --only method=dsui, with one of {', '.join(SELECTORS)}."
            )
        check_name("key of --only", key, SELECTORS)
        kept = parse_names(f"{key} in this grid", values, map(SELECTORS[key], grid.cells))
        cells = [cell for cell in cells if SELECTORS[key](cell) in kept]
    if seeds:
        kept = parse_names("seed in this grid", seeds, (str(cell.config.seed) for cell in grid.cells))
        cells = [cell for cell in cells if str(cell.config.seed) in kept]
    if not cells:
        raise DsuiError("no cell fits all of --only and --seeds; loosen them.")
    return cells


def cells_by_key(study: Study, keys: str) -> list[Cell]:
    """The cells of --cell, which the process of one job is started with."""
    cells = {cell.key: cell for cell in study.grid.cells}
    for key in keys.split(","):
        if key not in cells:
            raise DsuiError(f"{study.grid.name} has no cell {key}, so it was changed; start the study again.")
        if missing := study.missing_data(cells[key]):
            raise DsuiError(
                f"{cells[key].name} needs {', '.join(missing)}, which is not here; {_remedy(missing[0], study)}."
            )
    return [cells[key] for key in keys.split(",")]


def cell_states(study: Study, cells: Sequence[Cell], jobs: Sequence[Job]) -> list[CellState]:
    seconds = dict(zip((job[0].key for job in jobs), study.training_seconds(jobs), strict=True))
    return [
        CellState(cell.name, *study.state(cell), seconds.get(cell.key, 0) != 0, seconds.get(cell.key)) for cell in cells
    ]


def count_states(states: Sequence[CellState]) -> str:
    """How many cells are in which state: "2 done, 1 failed"."""
    return ", ".join(f"{count} {kind}" for kind, count in Counter(cell.state for cell in states).items())


def missing_data_notes(study: Study, cells: Sequence[Cell]) -> list[str]:
    """For each missing data set: how many cells need it, and how to get it."""
    waiting = Counter(name for cell in cells if not study.done(cell) for name in study.missing_data(cell))
    return [
        f"{'1 cell needs' if count == 1 else f'{count} cells need'} {name}: {_remedy(name, study)}"
        for name, count in waiting.items()
    ]


def _remedy(name: str, study: Study) -> str:
    if name.startswith(FOLDER):
        return f"put your images into {folder_path(name).absolute()} or correct its name in the grid"
    return f"dsui data get {name}" + ("" if study.root is None else f" --root {shlex.quote(str(study.root))}")
