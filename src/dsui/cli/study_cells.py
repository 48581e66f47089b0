"""The cells of a study that a user asked for, and how far they are."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dsui.cli.choice import WrongUsage, chosen, known
from dsui.data.registry import FOLDER, folder_path
from dsui.errors import DsuiError
from dsui.experiments.grid import Cell, Grid
from dsui.experiments.study import Job, Study

FACTS: dict[str, Callable[[Cell], str]] = {
    "method": lambda cell: cell.predictor,
    "data": lambda cell: cell.config.data,
    "backbone": lambda cell: cell.config.backbone,
    "recipe": lambda cell: cell.config.recipe.name,
    "known": lambda cell: cell.config.known or "none",
    "label": lambda cell: cell.label,
}
"""What --only may choose by."""


class CellState(NamedTuple):
    """`trains`: whether its run, which later cells may share, is trained for it; `seconds` of that, None if unknown."""

    name: str
    state: str
    detail: str
    trains: bool
    seconds: float | None


def filtered(grid: Grid, only: Sequence[str], seeds: str) -> list[Cell]:
    """The cells that fit --only and --seeds."""
    cells = list(grid.cells)
    for choice in only:
        fact, sign, values = choice.partition("=")
        if not sign:
            raise WrongUsage(f"--only {choice} is no choice; write --only method=dsui, with one of {', '.join(FACTS)}.")
        known("key of --only", fact, FACTS)
        kept = chosen(f"{fact} in this grid", values, map(FACTS[fact], grid.cells))
        cells = [cell for cell in cells if FACTS[fact](cell) in kept]
    if seeds:
        kept = chosen("seed in this grid", seeds, (str(cell.config.seed) for cell in grid.cells))
        cells = [cell for cell in cells if str(cell.config.seed) in kept]
    if not cells:
        raise DsuiError("no cell fits all of --only and --seeds; loosen them.")
    return cells


def named(study: Study, keys: str) -> list[Cell]:
    """The cells that a process was started for."""
    cells = {cell.key: cell for cell in study.grid.cells}
    for key in keys.split(","):
        if key not in cells:
            raise DsuiError(f"{study.grid.name} has no cell {key}, so it was changed; start the study again.")
        if absent := study.absent(cells[key]):
            raise DsuiError(
                f"{cells[key].name} needs {', '.join(absent)}, which is not here; {_remedy(absent[0], study)}."
            )
    return [cells[key] for key in keys.split(",")]


def states(study: Study, cells: Sequence[Cell], jobs: Sequence[Job]) -> list[CellState]:
    seconds = dict(zip((job[0].key for job in jobs), study.training_seconds(jobs), strict=True))
    return [
        CellState(cell.name, *study.state(cell), seconds.get(cell.key, 0) != 0, seconds.get(cell.key)) for cell in cells
    ]


def counted(found: Sequence[CellState]) -> str:
    """How many are in which state: "2 done, 1 failed"."""
    return ", ".join(f"{count} {kind}" for kind, count in Counter(cell.state for cell in found).items())


def missing_data(study: Study, cells: Sequence[Cell]) -> list[str]:
    """What to fetch, and how many cells wait for it."""
    waiting = Counter(name for cell in cells if not study.done(cell) for name in study.absent(cell))
    return [
        f"{'1 cell needs' if count == 1 else f'{count} cells need'} {name}: {_remedy(name, study)}"
        for name, count in waiting.items()
    ]


def _remedy(name: str, study: Study) -> str:
    """Own images nobody else can fetch."""
    if name.startswith(FOLDER):
        return f"put your images into {folder_path(name).absolute()} or correct its name in the grid"
    return f"dsui data get {name}" + ("" if study.root is None else f" --root {shlex.quote(str(study.root))}")
