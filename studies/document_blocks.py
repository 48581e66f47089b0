"""A table or figure of committed results rows, as a block of a Markdown document. A few lines of YAML specify it:

    file: cifar10-resnet18-paper      # results/NAME.jsonl, or a list of such names
    grid: cifar10-paper               # a shipped grid: title, columns, lines and reference of its table
    tasks: [accuracy, noise]          # only these of its columns
    table: [{task: ood, metrics: auroc, scores: [entropy]}]     # other columns, instead of a grid's or without a grid
    where: {seed: 0, method: [dsui, msp]}                       # only rows with these values in their fields
    means: {near: [cifar100, tiny-imagenet]}                    # columns of means over foreign sets
    published: table2                 # the paper's figures below
    figure: NAME                      # lines over data or attacks instead of a table, in docs/figures/NAME.svg
    paper: table2                     # a part of docs/paper.md, which needs no other key but the name of its figure

Further keys are `title`, `reference`, and `experiment: NAME` for an experiment with rows of its own kind. Columns and
methods without any row are left out; a method without rows for these columns is a line of "-".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import yaml

from dsui.evaluation.paper_tables import paper_rows
from dsui.evaluation.results import ResultRow
from dsui.experiments.grid import Block, Grid
from dsui.experiments.grid_file import load_grid
from dsui.report.columns import Figure, block_figures
from dsui.report.comparison import available, compare
from dsui.report.comparison_lines import relabel, with_prediction_stream
from dsui.report.figures.canvas import to_svg
from dsui.report.figures.method_panels import method_panel, places
from dsui.report.group_means import with_group_means
from dsui.report.table_forms import to_csv, to_markdown
from dsui.report.tables import Column, Entry, Line, Table
from dsui.runs.recipe_file import training_name
from studies import geometry, starts
from studies.paper_page import render_part

EXPERIMENTS: dict[str, Callable[[Path], str]] = {
    "geometry": lambda path: geometry.table(geometry.read(path)),
    "starts": starts.table,
}
NO_RUNS = Entry().text


@dataclass(frozen=True)
class BlockSpec:
    """What a block shows; the module's docstring explains the keys."""

    file: str | list[str] = ""
    experiment: str | None = None
    grid: str | None = None
    title: str | None = None
    tasks: list[str] | None = None
    table: list[dict[str, Any]] | None = None
    where: dict[str, Any] = field(default_factory=dict)
    reference: str | None = None
    means: dict[str, list[str]] = field(default_factory=dict)
    published: str | None = None
    figure: str | None = None
    paper: str | None = None

    @classmethod
    def parse(cls, text: str) -> BlockSpec:
        values = yaml.safe_load(text)
        known = [each.name for each in fields(cls)]
        if not isinstance(values, dict):
            raise ValueError(f"a block is a YAML mapping with the keys {', '.join(known)}; this one is not a mapping.")
        if unknown := [key for key in values if key not in known]:
            raise ValueError(f"a block has no key {unknown[0]}; its keys are {', '.join(known)}.")
        return cls(**values)


class RenderedBlock(NamedTuple):
    """A block's Markdown, and its figure where it has one."""

    markdown: str
    svg: str | None = None


def render_block(spec: BlockSpec, results: Path, link: str = "") -> RenderedBlock:
    """`results`: the folder of the rows; `link`: the path from the document to the figure."""
    if spec.experiment is not None:
        return _render_experiment(spec.experiment, results)
    if spec.paper is not None:
        return _render_part(spec.paper, results, spec.figure or "", link)
    table, figures = _build_table(spec, results)
    if spec.figure is None:
        return RenderedBlock(to_markdown(_with_runs_column(table)).rstrip())
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


def _render_part(name: str, results: Path, figure: str, link: str) -> RenderedBlock:
    part = render_part(name, results, figure, link)
    if part.drawing is None:
        return RenderedBlock(part.markdown)
    return RenderedBlock(part.markdown, _with_data(to_svg(part.drawing), part.data))


def _render_experiment(name: str, results: Path) -> RenderedBlock:
    path = results / f"{name}.jsonl"
    seeds = {json.loads(line)["seed"] for line in path.read_text().splitlines()}
    return RenderedBlock(f"{EXPERIMENTS[name](path)}\n\nMean ± deviation over {len(seeds)} runs.")


def _build_table(spec: BlockSpec, results: Path) -> tuple[Table, list[Figure]]:
    """The table and the figures of its columns. The lines of a grid come in its order, then those of other rows."""
    grid = _grid(spec.grid) if spec.grid else None
    names = [spec.file] if isinstance(spec.file, str) else spec.file
    rows = list(_read_rows(spec, [results / f"{name}.jsonl" for name in names]))
    rows = with_group_means(rows, spec.means or (grid.means if grid else {}))
    figures = _figures(_column_blocks(spec, grid), available(rows), needed=spec.table is not None, files=names)
    methods = dict.fromkeys(row.method for row in rows)
    table = compare(
        rows,
        figures,
        lines=[*(cell.label for cell in grid.cells if cell.label in methods), *methods] if grid else (),
        quoted=[with_prediction_stream(row) for row in paper_rows(spec.published)] if spec.published else [],
        reference=spec.reference or (grid.reference if grid else "dsui"),
        title=spec.title or (grid.title if grid else None),
    )
    return table, figures


def _read_rows(spec: BlockSpec, paths: Iterable[Path]) -> Iterator[ResultRow]:
    """Rows on their lines: by their own label, by the label the grid gives them, or by method and training."""
    labels = _labels(spec.grid) if spec.grid else {}
    own_names = set(labels.values()) - {method for method, *_ in labels}  # a method's name does not tell its recipe
    wanted = {name: value if isinstance(value, list) else [value] for name, value in spec.where.items()}
    for path in paths:
        for text in path.read_text().splitlines():
            row = _modernize(ResultRow.from_json(text))
            label = json.loads(text).get("label") or labels.get((row.method, row.data, row.backbone, row.recipe))
            if spec.grid and not label:
                label = row.method if row.method in own_names else f"{row.method} ({row.recipe})"
            named = {**vars(row), "label": label}
            if all(named[name] in values or (name == "method" and label in values) for name, values in wanted.items()):
                yield relabel(row, label) if label else row


@cache
def _grid(name: str) -> Grid:
    """Kept, since many blocks share a grid and a grid of many cells takes seconds to read."""
    return load_grid(name)


@cache
def _labels(grid: str) -> dict[tuple[str, str, str, str], str]:
    """The label of each cell of a grid, by what its rows say: method, data, backbone and training."""
    return {
        (cell.predictor, cell.config.data, cell.config.backbone, training_name(cell.config)): cell.label
        for cell in _grid(grid).cells
    }


def _modernize(row: ResultRow) -> ResultRow:
    """Rows older than `dsui evaluate` call all images of the official test set by another name."""
    protocol = f"{row.task}, all in-domain images of test" if row.protocol == "official test set" else row.protocol
    return with_prediction_stream(replace(row, protocol=protocol))


def _column_blocks(spec: BlockSpec, grid: Grid | None) -> list[Block]:
    if spec.table is None:
        if grid is None:
            raise ValueError("a block needs a grid or a table to know its columns.")
        return [block for block in grid.table if spec.tasks is None or block.task in spec.tasks]
    each = (
        {key: (value,) if isinstance(value, str) else tuple(value) for key, value in block.items() if key != "task"}
        for block in spec.table
    )
    return [Block(task=block["task"], **lists) for block, lists in zip(spec.table, each, strict=True)]


def _figures(blocks: Sequence[Block], present: Sequence[Figure], needed: bool, files: Sequence[str]) -> list[Figure]:
    """The figures of the blocks that are `present`; an error where one is `needed` of each block and there is none."""
    found: list[Figure] = []
    for block in blocks:
        sets = dict.fromkeys((f.data, f.backbone, f.foreign) for f in present if f.task == block.task)
        columns = [f for f in block_figures(block.task, sets, block.metrics, block.scores) if f in present]
        if needed and not columns:
            raise ValueError(f"no row of {', '.join(files)} has {', '.join(block.metrics)} of the task {block.task}.")
        found += columns
    return found


def _with_runs_column(table: Table) -> Table:
    header = ("",) * (len(table.columns[0].header) - 1) + ("runs",)
    counted = tuple(replace(line, cells=(Entry(text=_runs(line)), *line.cells)) for line in table.lines)
    return replace(table, columns=(Column(header), *table.columns), lines=counted)


def _runs(line: Line) -> str:
    counts = sorted({cell.runs for cell in line.cells if cell.runs is not None})
    return "-".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else NO_RUNS


def _with_data(svg: str, data: str) -> str:
    """The figure with its numbers, and with the version of matplotlib, since another one may draw it differently."""
    from matplotlib import __version__

    begin = svg.index(">", svg.index("<svg")) + 1
    description = f"\n <desc>{escape(data)}</desc>\n <!-- matplotlib {__version__} -->"
    return svg[:begin] + description + svg[begin:]
