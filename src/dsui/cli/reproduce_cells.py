"""The study that a user opens, the cells that are selected of it, and their states."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from dsui.cli.arguments import check_name, check_outside_images, parse_names
from dsui.cli.errors import UsageError
from dsui.data.registry import FOLDER, folder_path
from dsui.errors import DsuiError
from dsui.experiments import ALL_GRIDS
from dsui.experiments.engines import visible_gpus
from dsui.experiments.estimate import Estimate
from dsui.experiments.finished import FinishedCells, files_of_rows
from dsui.experiments.grid import Cell, Grid, Job
from dsui.experiments.grid_file import load_grid
from dsui.experiments.paper_grids import paper_grids, parts, united
from dsui.experiments.queue import worths
from dsui.experiments.speeds import CPU, GPU, Machine
from dsui.experiments.study import Study, missing_splits
from dsui.runs.folder import RESULTS

SELECTORS: dict[str, Callable[[Cell], str]] = {
    "method": lambda cell: cell.predictor,
    "data": lambda cell: cell.config.data,
    "backbone": lambda cell: cell.config.backbone,
    "recipe": lambda cell: cell.config.recipe.name,
    "known": lambda cell: cell.config.known or "none",
    "label": lambda cell: cell.label,
}
"""The keys of --only."""


@dataclass(frozen=True)
class OpenedStudy:
    """The study that runs cells, and the studies whose tables are shown: itself, or those of the paper's grids. `worth`
    is what each cell is worth to all of them."""

    study: Study
    shown: Sequence[Study]
    worth: Mapping[str, float]

    @classmethod
    def open(
        cls,
        name: str,
        out: Path,
        root: Path | None,
        runs: Path | None,
        results: Sequence[Path],
        rows: Path | None,
        *,
        reads_rows: bool,
    ) -> OpenedStudy:
        """`results` are files and folders of rows that were made elsewhere. New ones are appended to `rows`, which is
        also read (`reads_rows`) except in the processes of single jobs."""
        several = name == ALL_GRIDS
        grids = paper_grids() if several else (load_grid(name),)
        grid = united(grids) if several else grids[0]
        own = [rows] if reads_rows and rows is not None and rows.exists() else []
        finished = FinishedCells(rows or out / RESULTS, [*files_of_rows(results), *own])
        study = Study(grid, out, root, runs, finished=finished)
        return cls(study, parts(study, grids) if several else [study], worths(grids))

    def check_outside_images(self) -> None:
        """A study or a run among the images of folder:PATH would be taken for one of their classes."""
        used = {name for cell in self.study.grid.cells for name in (cell.config.data, cell.config.outliers) if name}
        for data in sorted(used):
            check_outside_images("--out", self.study.out, data)
            check_outside_images("--runs", self.study.runs, data)


class CellState(NamedTuple):
    """`trains`: whether this cell's run, which later cells may share, is still to be trained; `seconds`: how long one
    device needs for what is left of it, with its start and its evaluation, None if unknown."""

    name: str
    state: str
    detail: str
    trains: bool
    seconds: float | None


def machine_of(device: str, mode: str, workers: int) -> Machine:
    """What runs are trained on. `--device cuda` without a GPU, in a dry run, is any GPU that was measured."""
    if device == CPU or (device == "auto" and not torch.cuda.is_available()):
        return Machine(CPU, mode, workers)
    if not torch.cuda.is_available():
        return Machine(GPU, mode, workers)
    return Machine(torch.cuda.get_device_name(), mode, math.ceil(workers / max(1, len(visible_gpus()))))


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


def estimates_by_cell(study: Study, jobs: Sequence[Job], machine: Machine) -> dict[str, Estimate | None]:
    """How long each job still takes, by the key of its first cell."""
    found = study.estimates(jobs, machine, study.speeds())
    return dict(zip((job[0].key for job in jobs), found, strict=True))


def cell_states(
    study: Study, cells: Sequence[Cell], estimates: Mapping[str, Estimate | None] = {}, together: int = 1
) -> list[CellState]:
    """`estimates` by the first cell of each job, of which `together` share a device."""

    def state(cell: Cell) -> CellState:
        estimate = estimates.get(cell.key)
        trains = cell.key in estimates and (estimate is None or estimate.training > 0)
        seconds = None if estimate is None else estimate.seconds / together
        return CellState(cell.name, *study.state(cell), trains, seconds)

    return [state(cell) for cell in cells]


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
        folder = folder_path(name).absolute()
        if not folder.is_dir():
            return f"put your images into {folder} or correct its name in the grid"
        (split, *_) = missing_splits(folder, ("train", "test"))
        instead = ", or write held_out: 0.1 in the grid" if split == "test" else ""
        return f"{folder} has no folder {split}, so add one{instead}"
    return f"dsui data get {name}" + ("" if study.root is None else f" --root {shlex.quote(str(study.root))}")
