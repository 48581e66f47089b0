"""A table or figure of committed results rows as a block of a Markdown document, told by a few lines of YAML:

    file: cifar10-resnet18-paper      # results/NAME.jsonl, or a list of them
    grid: cifar10-paper               # a shipped grid: title, columns, lines and reference of its table
    tasks: [accuracy, noise]          # only these of its columns
    table: [{task: ood, metrics: auroc, scores: [entropy]}]     # columns of one's own, instead of or without a grid
    where: {seed: 0, method: [dsui, msp]}                       # only rows whose fields are among these
    published: table2                 # the paper's figures below
    figure: NAME                      # lines over data or attacks instead of a table, in docs/figures/NAME.svg

and `title` and `reference`, or `experiment: NAME` for one that keeps rows of its own kind. Columns and methods
without any row are left out; a method without rows of these figures is a line of "-".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from xml.sax.saxutils import escape

import yaml

from dsui.evaluation.paper_tables import PaperRow, paper_rows
from dsui.evaluation.results import ResultRow
from dsui.experiments.grid import Block, Grid
from dsui.experiments.grid_file import load_grid
from dsui.report.columns import Figure
from dsui.report.comparison import available, compare
from dsui.report.figures.canvas import to_svg
from dsui.report.figures.lines import lines, places
from dsui.report.table_forms import to_csv, to_markdown
from dsui.report.tables import Column, Entry, Line, Table
from dsui.runs.recipe_file import training_name
from studies import geometry, starts

EXPERIMENTS: dict[str, Callable[[Path], str]] = {
    "geometry": lambda path: geometry.table(geometry.read(path)),
    "starts": starts.table,
}
AnyRow = TypeVar("AnyRow", ResultRow, PaperRow)
NONE = Entry().text


@dataclass(frozen=True)
class Specification:
    """What a block shows; the keys are told above."""

    file: str | list[str] = ""
    experiment: str | None = None
    grid: str | None = None
    title: str | None = None
    tasks: list[str] | None = None
    table: list[dict[str, Any]] | None = None
    where: dict[str, Any] = field(default_factory=dict)
    reference: str | None = None
    published: str | None = None
    figure: str | None = None

    @classmethod
    def parsed(cls, text: str) -> Specification:
        values = yaml.safe_load(text)
        known = [each.name for each in fields(cls)]
        if not isinstance(values, dict) or (strange := [key for key in values if key not in known]):
            wrong = f"there is no {strange[0]}" if isinstance(values, dict) else "it is no mapping"
            raise ValueError(f"a block is told by {', '.join(known)}; {wrong}.")
        return cls(**values)


class Made(NamedTuple):
    """A block's Markdown, and its figure where it has one."""

    markdown: str
    svg: str | None = None


def made(asked: Specification, results: Path, link: str = "") -> Made:
    """`results`: the folder of the rows; `link`: how the document reaches the figure."""
    if asked.experiment is not None:
        return _of_experiment(asked.experiment, results)
    table, figures = _table(asked, results)
    if asked.figure is None:
        return Made(to_markdown(_with_runs(table)).rstrip())
    (metric, _score), *others = dict.fromkeys((figure.metric, figure.score) for figure in figures)
    if others:
        raise ValueError(f"{asked.figure} is one panel; ask for one metric and one score.")
    drawn = tuple(line for line in table.lines if not line.quoted and _runs(line) != NONE)
    table = replace(table, lines=drawn)
    drawing = lines(asked.figure, places(figures), table, metric)
    runs = ", ".join(f"{line.label} {_runs(line)}" for line in drawn)
    markdown = f"![{drawing.caption} {drawing.description}]({link})\n\n{drawing.caption} Number of runs: {runs}."
    return Made(markdown, _with_data(to_svg(drawing), table))


def _of_experiment(name: str, results: Path) -> Made:
    path = results / f"{name}.jsonl"
    seeds = {json.loads(line)["seed"] for line in path.read_text().splitlines()}
    return Made(f"{EXPERIMENTS[name](path)}\n\nMean ± deviation over {len(seeds)} runs.")


def _table(asked: Specification, results: Path) -> tuple[Table, list[Figure]]:
    grid = load_grid(asked.grid) if asked.grid else None
    names = [asked.file] if isinstance(asked.file, str) else asked.file
    rows = list(_rows([results / f"{name}.jsonl" for name in names], asked.where, grid))
    there, figures = available(rows), list[Figure]()
    for block in _blocks(asked, grid):
        columns = _columns(block, there)
        if asked.table and not columns:
            raise ValueError(f"no row of {', '.join(names)} has {', '.join(block.metrics)} of the task {block.task}.")
        figures += columns
    quoted = [_with_stream(row) for row in paper_rows(asked.published)] if asked.published else []
    reference = asked.reference or (grid.reference if grid else "dsui")
    title = asked.title or (grid.title if grid else None)
    table = compare(rows, figures, quoted=quoted, reference=reference, title=title)
    if grid is None:
        return table, figures
    shown = {line.label: line for line in table.lines if not line.quoted}
    nothing = {row.method: Line(row.method, tuple(Entry() for _ in figures)) for row in rows}
    own = nothing | shown
    order = [cell.label for cell in grid.cells if cell.label in own]
    arranged = (*(own[label] for label in dict.fromkeys([*order, *own])), *(x for x in table.lines if x.quoted))
    return replace(table, lines=arranged), figures


def _rows(paths: Iterable[Path], where: dict[str, Any], grid: Grid | None) -> Iterable[ResultRow]:
    """Rows on the lines they belong to: by their own label, by the grid's, or by method and training."""
    labels = {}
    for cell in grid.cells if grid else ():
        config = cell.config
        labels[cell.predictor, config.data, config.backbone, training_name(config)] = cell.label
    own_names = set(labels.values()) - {method for method, *_ in labels}  # a method's name does not tell its recipe
    for path in paths:
        for text in path.read_text().splitlines():
            row = _as_now(ResultRow.from_json(text))
            label = json.loads(text).get("label") or labels.get((row.method, row.data, row.backbone, row.recipe))
            if grid and not label:
                label = row.method if row.method in own_names else f"{row.method} ({row.recipe})"
            wanted = {name: value if isinstance(value, list) else [value] for name, value in where.items()}
            named = {**vars(row), "label": label}
            if all(named[name] in values or (name == "method" and label in values) for name, values in wanted.items()):
                yield replace(row, method=label, objective=None, recipe="") if label else row


def _as_now(row: ResultRow) -> ResultRow:
    """Rows of before `dsui evaluate`, on all images of the official test set, say so in other words."""
    protocol = f"{row.task}, all in-domain images of test" if row.protocol == "official test set" else row.protocol
    return _with_stream(replace(row, protocol=protocol))


def _with_stream(row: AnyRow) -> AnyRow:
    """Where only one stream is known, the accuracy is that of the prediction."""
    return replace(row, score="prediction") if row.task == "accuracy" and row.score is None else row


def _blocks(asked: Specification, grid: Grid | None) -> list[Block]:
    if asked.table is None:
        if grid is None:
            raise ValueError("a block needs a grid or a table to know its columns.")
        return [block for block in grid.table if asked.tasks is None or block.task in asked.tasks]
    each = (
        {key: (value,) if isinstance(value, str) else tuple(value) for key, value in block.items() if key != "task"}
        for block in asked.table
    )
    return [Block(task=block["task"], **lists) for block, lists in zip(asked.table, each, strict=True)]


def _columns(block: Block, there: Sequence[Figure]) -> list[Figure]:
    """Those figures of a block that there are: by data set, by foreign set, then by metric and score."""
    sets = dict.fromkeys((f.data, f.backbone, f.foreign) for f in there if f.task == block.task)
    wanted = (
        Figure(data, backbone, block.task, foreign, score, metric)
        for data, backbone, foreign in sets
        for metric in block.metrics
        for score in block.scores
    )
    return [figure for figure in wanted if figure in there]


def _with_runs(table: Table) -> Table:
    header = ("",) * (len(table.columns[0].header) - 1) + ("runs",)
    told = tuple(replace(line, cells=(Entry(text=_runs(line)), *line.cells)) for line in table.lines)
    return replace(table, columns=(Column(header), *table.columns), lines=told)


def _runs(line: Line) -> str:
    counts = sorted({cell.runs for cell in line.cells if cell.runs is not None})
    return "-".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else NONE


def _with_data(svg: str, table: Table) -> str:
    """The figure with its numbers, and with the version that drew it: another one may draw the same otherwise."""
    from matplotlib import __version__

    begin = svg.index(">", svg.index("<svg")) + 1
    told = f"\n <desc>{escape(to_csv(table))}</desc>\n <!-- matplotlib {__version__} -->"
    return svg[:begin] + told + svg[begin:]
