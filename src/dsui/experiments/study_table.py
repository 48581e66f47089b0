"""What a study shows: its table in the paper's layout, and the points of its figure as CSV.

Columns go by data set and backbone, then by the blocks of the grid: foreign set, metric, score. A line is a label of
the grid, in the grid's order; a figure without a run, or whose runs failed, is "-". Published figures stand below.
`dsui.report.comparison` builds the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dsui.evaluation.paper_tables import paper_rows
from dsui.experiments.grid import Block, Cell, Grid
from dsui.experiments.study import Study
from dsui.report.columns import Figure, block_figures
from dsui.report.comparison import compare
from dsui.report.comparison_lines import relabel, with_prediction_stream
from dsui.report.group_means import TASK, group_columns, with_group_means
from dsui.report.tables import Table
from dsui.spreadsheet import to_csv

CURVE = ("method", "quoted", "x", "task", "score", "metric", "mean", "deviation", "runs")


def columns(grid: Grid) -> list[Figure]:
    """The figures of the table, whether there are rows for them or not."""
    cells_by_place: dict[tuple[str, str], list[Cell]] = {}
    for cell in grid.cells:
        cells_by_place.setdefault((cell.config.data, cell.config.backbone), []).append(cell)
    return [
        figure
        for (data, backbone), cells in cells_by_place.items()
        for block in grid.table
        for figure in block_figures(
            block.task,
            [(data, backbone, other) for other in (*_foreign(block, cells), *_groups(block, grid, data))],
            block.metrics,
            block.scores,
        )
    ]


def study_table(study: Study, quoted: bool) -> Table:
    """All cells that are done; the note says what is not done, and why."""
    grid = study.grid
    rows = [relabel(row, cell.label) for cell in grid.cells for row in study.result(cell).rows]
    rows = with_group_means(rows, grid.means)
    published = [with_prediction_stream(row) for row in paper_rows(grid.published)] if quoted and grid.published else []
    labels = [cell.label for cell in grid.cells]
    table = compare(rows, columns(grid), lines=labels, quoted=published, reference=grid.reference, title=grid.title)
    return replace(table, note=" ".join(filter(None, (table.note, *missing_notes(study)))))


def missing_notes(study: Study) -> list[str]:
    """One sentence for the cells that wait, and one for each reason why cells failed or cannot run."""
    waiting = 0
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in study.grid.cells:
        kind, detail = study.state(cell)
        if kind in ("failed", "data missing"):
            reasons.setdefault((kind, detail), []).append(cell.name)
        elif kind != "done":
            waiting += 1
    notes = [f"Cells not done yet: {waiting} of {len(study.grid.cells)}."] if waiting else []
    for (kind, detail), cells in reasons.items():
        which = cells[0] if len(cells) == 1 else f"{cells[0]} and {len(cells) - 1} more"
        notes.append(f"Failed: {which}: {detail}" if kind == "failed" else f"Without {detail}: {which}.")
    return notes


def figure_csv(study: Study, table: Table | None) -> str:
    """Mean and deviation for each line and x of the table, or the points that the runs left for the figure."""
    if study.grid.figure == "curve" and table is not None:
        curve: list[tuple[object, ...]] = [CURVE]
        for line in table.lines:
            for figure, cell in zip(columns(study.grid), line.cells, strict=True):
                if cell.mean is not None:
                    facts = (line.label, line.quoted, _x(figure), figure.task, figure.score, figure.metric)
                    curve.append((*facts, cell.mean, cell.deviation, cell.runs))
        return to_csv(curve)
    points = [{"method": cell.label, "seed": cell.config.seed, **point} for cell, point in _points(study)]
    names = list(dict.fromkeys(name for point in points for name in point))
    return to_csv([names, *([point.get(name) for name in names] for point in points)])


def _points(study: Study) -> Iterable[tuple[Cell, Mapping[str, Any]]]:
    return ((cell, point) for cell in study.grid.cells for point in study.result(cell).points)


def _foreign(block: Block, cells: Iterable[Cell]) -> list[str | float | None]:
    match block.task:
        case "ood":
            return list(dict.fromkeys(name for cell in cells for name in cell.foreign))
        case "fgsm":
            return list(dict.fromkeys(epsilon for cell in cells for epsilon in cell.epsilons))
        case "noise":
            return ["noise"]
        case _:
            return [None]


def _groups(block: Block, grid: Grid, data: str) -> Iterable[str]:
    return group_columns(grid.means, data) if block.task == TASK else ()


def _x(figure: Figure) -> str | float:
    """The x of a point: an attack's strength, a pair of sets, or data set and backbone, as in the paper."""
    if isinstance(figure.foreign, str):
        return f"{figure.data} → {figure.foreign}"
    return f"{figure.data}, {figure.backbone}" if figure.foreign is None else figure.foreign
