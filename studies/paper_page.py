"""The parts of docs/paper.md: the paper's tables and figures in its own layout, from committed rows.

A block `<!-- results: {paper: table2} -->` is the part `table2`; `PARTS` lists all of them. Ours and the paper's
figures, marked with a dagger, stand one below the other, each with a best of their own. A cell that the paper leaves
open is "-"; a cell without rows is "not run".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from dsui.evaluation.statistics import LEVEL, Summary, mark, obstacle, t_test
from dsui.experiments.grid_file import load_grid
from dsui.report.columns import SCORES as SCORE_NAMES
from dsui.report.columns import Figure
from dsui.report.comparison_lines import MIXTURES
from dsui.report.figures.canvas import Drawing
from dsui.report.figures.lines import rows_in_four_panels
from dsui.report.metric_formats import METRICS as FORMATS
from dsui.report.table_forms import to_csv, to_markdown
from dsui.report.tables import Entry, Line, Table
from studies.paper_cells import (
    ABLATION_CELLS,
    BACKBONES,
    CELLS,
    DATA,
    MEASURES,
    OTHER_PAIR_CELLS,
    PAIR_CELLS,
    RESNET,
    SHOWN,
    Figures,
    Published,
    Standing,
    in_paper,
    place_name,
    printed,
    standing,
    summarize_lines,
)
from studies.paper_claims import FULL, claim_sentence, claims_table, count_table, difference_text, gather, part_title
from studies.paper_geometry import check_geometry, geometry_table
from studies.paper_lines import (
    ABLATION,
    BEYOND,
    NAMES,
    OURS,
    RIVALS,
    STREAMS,
    frozen_settings,
    read_grid_rows,
    read_paper_rows,
)

NOT_RUN = "not run"
TITLES = {
    "table1": "Parts of DS-UI: CIFAR-10, VGG16, detection of errors",
    "table2": "Accuracy",
    "table3": "Unknown classes: 6 of 10 classes known (CIFAR-10) and 20 of 200 (Tiny ImageNet), ResNet18",
    "table4": "Uniform noise: CIFAR-100, ResNet18",
    "figure3": "Detection of errors on the four data sets with both backbones",
    "figure5": "Detection of foreign data sets, ResNet18",
    "figure6": "Detection of images attacked with FGSM: CIFAR-10, ResNet18",
}
CLAIMS_OF = {
    "table1": ["components", "reg", "both-parts"],
    "table2": ["accuracy"],
    "table3": ["open-set", "open-set-significant"],
    "table4": ["noise"],
    "figure3": ["misclassification"],
    "figure5": ["pairs"],
    "figure6": ["attacks"],
}


class RenderedPart(NamedTuple):
    """A part's Markdown, and its figure with the numbers it shows, where it has one."""

    markdown: str
    drawing: Drawing | None = None
    data: str = ""


def render_part(part: str, results: Path, figure: str, link: str) -> RenderedPart:
    """`figure`: the name of the part's figure; `link`: the path to it from the document."""
    if part not in PARTS:
        raise ValueError(f"the paper has no part {part}; its parts are {', '.join(PARTS)}.")
    return PARTS[part](results, figure, link)


def _ablation(results: Path, _figure: str, _link: str) -> RenderedPart:
    figures = summarize_lines(read_grid_rows(results, ABLATION), ABLATION_CELLS)
    quoted = printed("table1")
    labels = dict.fromkeys([*quoted, *(cell.label for cell in load_grid(ABLATION).cells)])
    lines: list[Line] = []
    for label in labels:
        for ending in ("", MIXTURES):
            cells = tuple(_own(figures, f"{label}{ending}", cell, FULL, planned=True) for cell in ABLATION_CELLS)
            lines.append(Line(f"{_settings(label)}{ending}", cells))
        lines += [Line(_settings(label), tuple(map(_quote, map(quoted[label].get, ABLATION_CELLS))), quoted=True)] * (
            label in quoted
        )
    table = _table("table1", lines, ABLATION_CELLS, f"the line {_settings(FULL)}", corner="parts")
    return RenderedPart(f"{_claims('table1', results)}\n\n{to_markdown(table).rstrip()}")


def _compared(part: str) -> Callable[[Path, str, str], RenderedPart]:
    """Tables 2 to 4."""

    def render(results: Path, _figure: str, _link: str) -> RenderedPart:
        cells, figures = CELLS[part], gather(results).rivals
        table = comparison_table(part, figures)
        return RenderedPart(
            f"{_claims(part, results)}\n\n{to_markdown(table)}\n{difference_table(figures, [cells])}".rstrip()
        )

    return render


def comparison_table(part: str, figures: Figures) -> Table:
    """All methods of one of the paper's tables, each above its printed line."""
    cells, quoted = CELLS[part], printed(part)
    lines: list[Line] = []
    for name in [*RIVALS.values(), *STREAMS, *BEYOND.values()]:
        if name in quoted or name in STREAMS or any(cell in figures.get(name, {}) for cell in cells):
            own = (_own(figures, name, cell, OURS, planned=_is_planned(name, cell)) for cell in cells)
            lines.append(Line(name, tuple(own)))
        after = OURS if name.endswith(MIXTURES) else "" if name in STREAMS else name
        if after in quoted:
            lines.append(Line(after, tuple(_quote(quoted[after].get(cell)) for cell in cells), quoted=True))
    return _table(part, lines, cells, f"{OURS} by its classifier")


def _drawn(part: str, others: Sequence[Figure] = ()) -> Callable[[Path, str, str], RenderedPart]:
    """Figures 3, 5 and 6; `others` are cells that only the table of differences has."""

    def render(results: Path, name: str, link: str) -> RenderedPart:
        cells, figures = CELLS[part], gather(results).rivals
        lines = [*RIVALS.values(), *STREAMS]
        rows = [row for row in read_paper_rows(results).rows if row.method in lines]
        caption = f"{part_title(part)}: {TITLES[part]}"
        drawn = rows_in_four_panels(
            name, rows, cells, [line for line in lines if line in figures], caption, [place_name(c) for c in cells[::4]]
        )
        differences = difference_table(figures, [cells, others])
        if drawn is None:
            return RenderedPart(f"{_claims(part, results)}\n\n{caption}: {NOT_RUN} yet.\n\n{differences}".rstrip())
        drawing, tables = drawn
        image = f"![{drawing.caption} {drawing.description}]({link})\n\n**{drawing.caption}** {_bars(tables)}"
        markdown = f"{_claims(part, results)}\n\n{image}\n\n{differences}".rstrip()
        return RenderedPart(markdown, drawing, "\n".join(f"{table.title}\n{to_csv(table)}" for table in tables))

    return render


def difference_table(figures: Figures, groups: Sequence[Sequence[Figure]]) -> str:
    """DS-UI minus the best rival at each place; of the second group of cells it says that the figure lacks them."""
    measures = dict.fromkeys((cell.metric, cell.score) for cells in groups for cell in cells)
    names = [
        FORMATS[metric].title if metric == "accuracy" else f"{FORMATS[metric].title} {SCORE_NAMES[score or '']}"
        for metric, score in measures
    ]
    lines = [
        f"| {OURS} minus the best rival | {' | '.join(names)} | rivals |",
        f"|---|{'---:|' * (len(names) + 1)}",
    ]
    waiting = []
    for number, cells in enumerate(groups):
        for place, of_place in groupby(cells, place_name):
            at_place = list(of_place)
            found = {stream: [standing(figures, cell, stream) for cell in at_place] for stream in STREAMS}
            if not any(cell.run for each in found.values() for cell in each):
                waiting.append(place)
                continue
            for stream, each in found.items():
                remark = " (not in the figure)" if number else ""
                total = len({line for line in RIVALS.values() if in_paper(line, at_place[0])} | _with_rows(figures, each))
                have = total - len(each[0].missing)
                label = f"{place}{remark}, {STREAMS[stream]}"
                lines.append(f"| {label} | {' | '.join(map(_difference_cell, each))} | {have} of {total} |")
    sentences = [
        "Points, with Welch's 95 % interval, and the rival with the largest mean; **bold** where DS-UI has the best mean. "
        '"rivals": how many of the rivals there have rows.'
    ]
    sentences += [f"Not run yet: {'; '.join(waiting)}."] if waiting else []
    return "\n".join([*lines, "", *sentences]) if len(lines) > 2 else sentences[-1]


def _with_rows(figures: Figures, cells: Iterable[Standing]) -> set[str]:
    return {line for cell in cells for line in RIVALS.values() if cell.figure in figures.get(line, {})}


def _difference_cell(cell: Standing) -> str:
    if not cell.run:
        return NOT_RUN
    text = difference_text(cell)
    return f"{f'**{text}**' if cell.best else text} {cell.rival}"


def _own(figures: Figures, line: str, cell: Figure, reference: str, *, planned: bool) -> Entry:
    """A figure of ours with its mark against the line `reference`."""
    summary, against = figures.get(line, {}).get(cell), figures.get(reference, {}).get(cell)
    if summary is None:
        return Entry(text=NOT_RUN if planned else "-")
    if line == reference or against is None or obstacle(summary, against):
        return _entry(summary)
    p = t_test(summary, against)
    return replace(_entry(summary), p=p, mark=mark(p))


def _entry(summary: Summary) -> Entry:
    return Entry(summary.mean, summary.deviation, summary.runs)


def _quote(published: Published | None) -> Entry:
    return Entry() if published is None else replace(_entry(published.summary), mark=published.mark or None)


def _is_planned(line: str, cell: Figure) -> bool:
    """Ours are planned where the paper has figures; what it does not have, on ResNet18 alone."""
    name = OURS if line in STREAMS else line
    in_some_table = any(name in printed(table) for table in ("table2", "table3", "table4"))
    return in_paper(name, cell) if in_some_table else cell.backbone == RESNET


def _table(part: str, lines: Sequence[Line], cells: Sequence[Figure], reference: str, corner: str = "method") -> Table:
    columns = tuple(replace(SHOWN, header=(_column_name(part, cell),)) for cell in cells)
    runs = sorted({entry.runs for line in lines if not line.quoted for entry in line.cells if entry.runs is not None})
    counted = f"Ours: mean ± deviation over {' to '.join(map(str, dict.fromkeys((runs[0], runs[-1]))))} runs. " if runs else ""
    note = (
        f"{counted}✓ differs from {reference}, × does not (Student's t-test, p < {LEVEL}); the paper's marks as printed. "  # noqa: RUF001
        "Ours and the paper's figures have a best each."
    )
    return Table(f"{part_title(part)}: {TITLES[part]}", columns, tuple(lines), note, corner, beside=True)


def _column_name(part: str, cell: Figure) -> str:
    measure = cell.metric if cell.metric == "accuracy" else f"{FORMATS[cell.metric].title} {SCORE_NAMES[cell.score or '']}"
    match part:
        case "table2":
            return f"{DATA[cell.data]} {BACKBONES[cell.backbone or RESNET]}"
        case "table3":
            return f"{place_name(cell)} {measure}"
        case _:
            return measure


def _settings(label: str) -> str:
    """ "dsui (K 8, push, reg)" as "K 8, push, reg"."""
    return label.removeprefix("dsui (").removesuffix(")")


def _claims(part: str, results: Path) -> str:
    return claim_sentence(CLAIMS_OF[part], gather(results))


def _bars(tables: Sequence[Table]) -> str:
    """How many runs are behind each line of a figure."""
    counts: dict[str, set[int]] = {}
    for table in tables:
        for line in table.lines:
            counts.setdefault(line.label, set()).update(cell.runs for cell in line.cells if cell.runs is not None)
    listed = ", ".join(f"{label} {'-'.join(map(str, sorted({min(n), max(n)})))}" for label, n in counts.items() if n)
    return f"Points are means over runs, bars deviations. Number of runs: {listed}."


def _frozen(results: Path) -> str:
    """The settings of every line, and where the second baseline has rows."""
    rows = read_paper_rows(results)
    present = {row.method for row in rows.rows}
    lines = ["| line | training |", "|---|---|"]
    for (_, training), label in frozen_settings().items():
        name = NAMES.get(label, label)
        remark = "" if name in present else f" ({NOT_RUN} yet)"
        lines.append(f"| {name}{remark} | `{training}` |")
    unused = [", ".join(training) for training in rows.unused]
    sentence = f"\n\nRows of other trainings are on no line here: {'; '.join(unused)}." if unused else ""
    return "\n".join(lines) + sentence


def _geometry(results: Path, _figure: str, _link: str) -> RenderedPart:
    check = check_geometry(results)
    sentence = f"The paper's claim that {check.claim}: {check.verdict}."
    return RenderedPart(f"{sentence}\n\n{geometry_table(results)}")


PARTS: dict[str, Callable[[Path, str, str], RenderedPart]] = {
    "counts": lambda results, *_: RenderedPart(count_table(results)),
    "claims": lambda results, *_: RenderedPart(claims_table(results)),
    "settings": lambda results, *_: RenderedPart(_frozen(results)),
    "figure1": _geometry,
    "table1": _ablation,
    "table2": _compared("table2"),
    "figure3": _drawn("figure3"),
    "figure5": _drawn("figure5", OTHER_PAIR_CELLS),
    "table3": _compared("table3"),
    "table4": _compared("table4"),
    "figure6": _drawn("figure6"),
}
