"""A table or figure of committed results rows, as a block of a Markdown document. A few lines of YAML specify it:

    file, grid, where, means, labels  # the rows (`studies.document_rows`)
    tasks: [accuracy, noise]          # only these of the grid's columns
    table: [{task: ood, metrics: auroc, scores: [entropy]}]     # other columns, instead of a grid's or without a grid
    titles: [accuracy, AUROC]         # what the columns are called
    short: true                       # means alone: neither deviations nor ranks nor numbers of runs
    published: table2                 # the paper's figures below
    figure: NAME                      # lines over data or attacks instead of a table, in docs/figures/NAME.svg
    paper: table2                     # a part of docs/paper.md, which needs no other key but the name of its figure

Further keys are `title`, `reference`, and `experiment: NAME` for an experiment with rows of its own kind; where it is
a figure, `figure` is the same name. Columns and
methods without any row are left out; a method without rows for these columns is a line of "-". A table of more than
`WIDEST` columns is folded. Marks of significance are corrected by Holm's method for all tests of a table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from dsui.evaluation.paper_tables import paper_rows
from dsui.evaluation.results import ResultRow
from dsui.evaluation.statistics import ALIKE, DIFFERENT, LEVEL
from dsui.experiments.grid import Block, Grid
from dsui.report.columns import Figure, block_figures
from dsui.report.comparison import available, compare
from dsui.report.comparison_lines import with_prediction_stream
from dsui.report.figures.canvas import Drawing, to_svg
from dsui.report.figures.method_panels import method_panel, places
from dsui.report.table_forms import to_csv, to_markdown
from dsui.report.tables import Column, Entry, Line, Table
from studies import calibration, doubles_density, estimator, geometry, starts, transfer, transfer_selection
from studies.document_rows import RowSource, load_cached
from studies.paper_page import render_part

EXPERIMENTS: dict[str, Callable[[Path], str]] = {
    "geometry": lambda path: geometry.table(geometry.read(path)),
    "starts": starts.table,
    "estimator": estimator.table,
    "calibration": calibration.table,
    "temperature": calibration.temperature_table,
    "transfer-selection": transfer_selection.table,
    "transfer": transfer.table,
    "transfer-detectors": transfer.detector_table,
}
DRAWN: dict[str, Callable[[Path], Drawing]] = {"doubles-density": doubles_density.drawing}
"""Experiments that are figures, each under its own name in docs/figures."""
FILES = {"transfer-detectors": "transfer"}
"""The rows of an experiment that has no file of its own name."""
CAPTIONS = {
    "transfer-selection": "Means over {} draws.",
    "transfer": "Mean ± deviation over {} draws.",
    "estimator": "Mean ± deviation over {} splits, of foreign samples over 5 of them. A split without an error has no "
    f"errors AUROC. {DIFFERENT} differs from DensityClassifier, {ALIKE} does not (t-test corrected for splits that "
    f"share samples, p < {LEVEL}, Holm-corrected over {estimator.TESTS} tests).",
}
NO_RUNS = Entry().text


WIDEST = 7
"""Columns that a page has room for, beside the labels."""
SHORTER = {
    "prediction accuracy": "accuracy",
    "accuracy prediction": "",
    "accuracy density": "mixtures'",
    "density accuracy": "mixtures' accuracy",
    "misclassification": "errors:",
    "ood →": "→",
}
"""What the parts of a header are called in documents."""


@dataclass(frozen=True)
class BlockSpec(RowSource):
    """What a block shows; the module's docstring explains the keys."""

    experiment: str | None = None
    title: str | None = None
    tasks: list[str] | None = None
    table: list[dict[str, Any]] | None = None
    titles: list[str] | None = None
    short: bool = False
    reference: str | None = None
    published: str | None = None
    figure: str | None = None
    paper: str | None = None


class RenderedBlock(NamedTuple):
    """A block's Markdown, and its figure where it has one."""

    markdown: str
    svg: str | None = None


def render_block(spec: BlockSpec, results: Path, link: str = "") -> RenderedBlock:
    """`results`: the folder of the rows; `link`: the path from the document to the figure."""
    if spec.experiment in DRAWN:
        drawing = DRAWN[spec.experiment](results / f"{spec.experiment}.jsonl")
        markdown = f"![{drawing.caption} {drawing.description}]({link})\n\n{drawing.caption} {drawing.reading}"
        return RenderedBlock(markdown, to_svg(drawing))
    if spec.experiment is not None:
        return _render_experiment(spec.experiment, results)
    if spec.paper is not None:
        return _render_part(spec.paper, results, spec.figure or "", link)
    table, figures = _build_table(spec, results)
    if spec.figure is None:
        markdown = to_markdown(table).rstrip()
        return RenderedBlock(_folded(table, _only_best(markdown) if spec.short else markdown))
    (metric, _score), *others = dict.fromkeys((figure.metric, figure.score) for figure in figures)
    if others:
        raise ValueError(f"{spec.figure} is one panel; choose one metric and one score.")
    drawn = tuple(line for line in table.lines if not line.quoted and _runs(line) != NO_RUNS)
    table = replace(table, lines=drawn)
    drawing = method_panel(spec.figure, places(figures), table, metric)
    runs = ", ".join(f"{line.label} {_runs(line)}" for line in drawn)
    image = f"![{drawing.caption} {drawing.description}]({link})"
    markdown = f"{image}\n\n{drawing.caption} {drawing.reading} Number of runs: {runs}."
    return RenderedBlock(markdown, _with_data(to_svg(drawing), to_csv(table)))


def _only_best(markdown: str) -> str:
    """Without the second best, so that the source of a short table is no wider than a page of code."""
    title, table, caption = markdown.split("\n\n")
    lines = re.sub("</?ins>", "", table).splitlines()
    names, _rule, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    first, *others = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    rule = ["-" * first, *("-" * (width - 1) + ":" for width in others)]
    padded = [[row[0].ljust(first), *map(str.rjust, row[1:], others)] for row in (names, rule, *rows)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in padded)
    return "\n\n".join((title, table, caption.replace(", second best underlined", "")))


def _folded(table: Table, markdown: str) -> str:
    """A table that is wider than a page opens on a click; its source must leave lines empty around Markdown."""
    if len(table.columns) <= WIDEST:
        return markdown
    summary = f"{escape(table.title)}: a wide table"
    return f"<details>\n<summary>{summary}</summary>\n\n{markdown}\n\n</details>"


def _render_part(name: str, results: Path, figure: str, link: str) -> RenderedBlock:
    part = render_part(name, results, figure, link)
    if part.drawing is None:
        return RenderedBlock(part.markdown)
    return RenderedBlock(part.markdown, _with_data(to_svg(part.drawing), part.data))


def _render_experiment(name: str, results: Path) -> RenderedBlock:
    path = results / f"{FILES.get(name, name)}.jsonl"
    seeds = {json.loads(line)["seed"] for line in path.read_text().splitlines()}
    caption = CAPTIONS.get(name, "Mean ± deviation over {} runs.").format(len(seeds))
    return RenderedBlock(f"{EXPERIMENTS[name](path)}\n\n{caption}")


def _build_table(spec: BlockSpec, results: Path) -> tuple[Table, list[Figure]]:
    """The table and the figures of its columns. The lines of a grid come in its order, then those of other rows."""
    grid = load_cached(spec.grid) if spec.grid else None
    rows = spec.rows(results)
    figures = _figures(spec, grid, available(rows))
    methods = dict.fromkeys(row.method for row in rows)
    reference = spec.reference or (grid.reference if grid else "dsui")
    ordered = (spec.labels.get(cell.label, cell.label) for cell in grid.cells) if grid else ()
    table = compare(
        rows,
        figures,
        lines=[*(label for label in ordered if label in methods), *methods] if grid else (),
        quoted=[with_prediction_stream(row) for row in paper_rows(spec.published)] if spec.published else [],
        reference=reference,
        correct=True,
        title=spec.title or (grid.title if grid else None),
    )
    if spec.figure is None:
        table = replace(table, columns=_titled(table.columns, spec.titles))
        table = _shortened(table, rows, reference) if spec.short else _with_runs_column(table)
    return table, figures


def _figures(spec: BlockSpec, grid: Grid | None, present: Sequence[Figure]) -> list[Figure]:
    """The figures of the block's columns that are `present`; an error where one is named and there is none."""
    if spec.table is None and grid is None:
        raise ValueError("a block needs a grid or a table to know its columns.")
    found: list[Figure] = []
    for block, foreign in _own_columns(spec.table or ()) or _grid_columns(spec, grid):
        sets = dict.fromkeys((f.data, f.backbone, f.foreign) for f in present if f.task == block.task)
        chosen = [each for each in sets if not foreign or str(each[2]).split(",")[0] in foreign]
        columns = [f for f in block_figures(block.task, chosen, block.metrics, block.scores) if f in present]
        if spec.table is not None and not columns:
            raise ValueError(
                f"no row of {', '.join(spec.files)} has {', '.join(block.metrics)} of the task {block.task}."
            )
        found += columns
    return found


def _grid_columns(spec: BlockSpec, grid: Grid | None) -> list[tuple[Block, tuple[str, ...]]]:
    blocks = grid.table if grid else ()
    return [(block, ()) for block in blocks if spec.tasks is None or block.task in spec.tasks]


def _own_columns(table: Sequence[dict[str, Any]]) -> list[tuple[Block, tuple[str, ...]]]:
    """The columns of `table`, each entry with the foreign sets or the names of means that it is limited to."""
    each = (
        {key: (value,) if isinstance(value, str) else tuple(value) for key, value in entry.items() if key != "task"}
        for entry in table
    )
    return [
        (Block(entry["task"], lists["metrics"], lists["scores"]), lists.get("foreign", ()))
        for entry, lists in zip(table, each, strict=True)
    ]


def _titled(columns: Sequence[Column], titles: Sequence[str] | None) -> tuple[Column, ...]:
    """The columns under one line each: the given titles, or their own with shorter words."""
    if titles is None:
        own = (" ".join(filter(None, column.header)) for column in columns)
        titles = [_shorter(title) for title in own]
    if len(titles) != len(columns):
        raise ValueError(f"the block has {len(columns)} columns and {len(titles)} titles.")
    return tuple(replace(column, header=(title,)) for column, title in zip(columns, titles, strict=True))


def _shorter(title: str) -> str:
    for long, short in SHORTER.items():
        title = title.replace(long, short)
    return title.strip()


def _with_runs_column(table: Table) -> Table:
    counted = tuple(replace(line, cells=(Entry(text=_runs(line)), *line.cells)) for line in table.lines)
    return replace(table, columns=(Column(("runs",)), *table.columns), lines=counted)


def _shortened(table: Table, rows: Sequence[ResultRow], reference: str) -> Table:
    """Means and marks alone, and behind them how many forward passes a prediction takes."""
    passes = {row.method: f"{row.metrics['passes']:.0f}" for row in rows if "passes" in row.metrics}
    shown = tuple(
        replace(line, cells=(*(replace(cell, deviation=None) for cell in line.cells), Entry(text=count)))
        for line, count in ((line, passes.get(line.label, NO_RUNS)) for line in table.lines)
    )
    cells = [cell for line in table.lines for cell in line.cells]
    counts = sorted({cell.runs for cell in cells if cell.runs is not None})
    tests = sum(cell.p is not None for cell in cells)
    note = (
        f"Means over {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} runs. {DIFFERENT} differs from "
        f"{reference}, {ALIKE} does not (Student's t-test, p < {LEVEL}, Holm-corrected over {tests} tests)."
    )
    return replace(table, columns=(*table.columns, Column(("passes",))), lines=shown, note=note)


def _runs(line: Line) -> str:
    counts = sorted({cell.runs for cell in line.cells if cell.runs is not None})
    return "-".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else NO_RUNS


def _with_data(svg: str, data: str) -> str:
    """The figure with its numbers, and with the version of matplotlib, since another one may draw it differently."""
    from matplotlib import __version__

    begin = svg.index(">", svg.index("<svg")) + 1
    description = f"\n <desc>{escape(data)}</desc>\n <!-- matplotlib {__version__} -->"
    return svg[:begin] + description + svg[begin:]
