"""The grids of the paper, all of them as one study.

A run that several tables show is one run of the united grid, and is trained once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dsui.experiments import ALL_GRIDS, PAPER_GRIDS
from dsui.experiments.grid import Cell, Grid
from dsui.experiments.grid_file import load_grid
from dsui.experiments.study import Study


def paper_grids() -> tuple[Grid, ...]:
    return tuple(map(load_grid, PAPER_GRIDS))


def united(grids: Iterable[Grid]) -> Grid:
    """The cells of all grids, each once, the first seed first; the tables and figures remain those of the grids."""
    cells: dict[str, Cell] = {}
    for cell in (cell for grid in grids for cell in grid.cells):
        cells.setdefault(cell.key, cell)
    ordered = sorted(cells.values(), key=lambda cell: cell.config.seed)
    return Grid(
        name=ALL_GRIDS,
        title="All tables and figures of the paper",
        cells=tuple(ordered),
        table=(),
        figure=None,
        published=None,
        reference="dsui",
    )


def parts(study: Study, grids: Iterable[Grid]) -> list[Study]:
    """The studies of the grids, which read what the study of the united grid has run; each has a folder of its own."""
    return [
        Study(grid, study.out / grid.name, study.root, study.runs, cells=study.cells, finished=study.finished)
        for grid in grids
    ]
