"""The parts of docs/paper.md: the paper's tables and figures in its own layout, from committed rows.

A block `<!-- results: {paper: table2} -->` is the part `table2`; `PARTS` lists all of them. A part begins with the
claims that the paper makes about it, and whether they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dsui.report.columns import Figure
from dsui.report.figures.canvas import Drawing
from dsui.report.figures.method_panels import rows_in_four_panels
from dsui.report.table_forms import to_csv, to_markdown
from dsui.report.tables import Entry, Table
from studies.paper_cells import CELLS, DATA, MEASURES, OTHER_PAIR_CELLS, place_name
from studies.paper_claims import claim_sentence, claims_table, gather
from studies.paper_geometry import check_geometry, geometry_table
from studies.paper_lines import (
    NAMES,
    OPEN_SET,
    RIVALS,
    SETTINGS,
    STREAMS,
    frozen_settings,
    read_paper_rows,
    row_files,
)
from studies.paper_points import FIGURES, draw_points
from studies.paper_standings import NOT_RUN, count_table, difference_table, part_title
from studies.paper_tables import ablation_table, comparison_table, runs_text

TITLES = {
    "table1": "parts of DS-UI, CIFAR-10, VGG16, detection of errors",
    "table2": "accuracy",
    "table3": "detection of unknown classes, ResNet18",
    "table4": "detection of uniform noise, CIFAR-100, ResNet18",
    "figure3": "detection of errors on four data sets with two backbones",
    "figure5": "detection of foreign data sets, ResNet18",
    "figure6": "detection of images attacked with FGSM, CIFAR-10, ResNet18",
}
CLAIMS_OF = {
    "table1": ["components", "components-resnet18", "reg", "both-parts"],
    "table2": ["accuracy"],
    "table3": ["open-set", "open-set-significant"],
    "table4": ["noise"],
    "figure3": ["misclassification"],
    "figure5": ["pairs"],
    "figure6": ["attacks", "attacks-best", "attacks-tiny"],
}


class RenderedPart(NamedTuple):
    """A part's Markdown, and its figure with the numbers it shows, where it has one."""

    markdown: str
    drawing: Drawing | None = None
    data: str = ""


Render = Callable[[Path, str, str], RenderedPart]
"""From the folder of the rows, the name of the part's figure, and the link to it."""


def render_part(part: str, results: Path, figure: str, link: str) -> RenderedPart:
    if part not in PARTS:
        raise ValueError(f"the paper has no part {part}; its parts are {', '.join(PARTS)}.")
    return PARTS[part](results, figure, link)


def _tabled(part: str) -> Render:
    """Tables 1 to 4."""

    def render(results: Path, _name: str, _link: str) -> RenderedPart:
        evidence, title = gather(results), _title(part)
        if part == "table1":
            return _joined(part, results, to_markdown(ablation_table(title, evidence.ablation)))
        table = comparison_table(part, title, evidence.methods)
        return _joined(part, results, to_markdown(table), difference_table(evidence.methods, CELLS[part]))

    return render


def _drawn(part: str, others: Sequence[Figure] = ()) -> Render:
    """Figures 3, 5 and 6; `others` are cells that the table of differences has, and not the figure."""

    def render(results: Path, name: str, link: str) -> RenderedPart:
        cells, figures = CELLS[part], gather(results).methods
        order = [line for line in (*RIVALS.values(), *STREAMS) if line in figures]
        rows = [row for row in read_paper_rows(row_files(results)).rows if row.method in order]
        names = [place_name(cell).replace(DATA["tiny-imagenet"], "TIM") for cell in cells[:: len(MEASURES)]]
        drawn = rows_in_four_panels(name, rows, cells, order, _title(part), names)
        differences = difference_table(figures, cells, others)
        if drawn is None:
            return _joined(part, results, f"{_title(part)}: {NOT_RUN} yet.", differences)
        drawing, tables = drawn
        image = f"![{drawing.caption} The numbers are in the file.]({link})"
        data = "\n".join(f"{table.title}\n{to_csv(table)}" for table in tables)
        words = f"**{drawing.caption}** {drawing.reading} {_bars(tables)}"
        return _joined(part, results, image, words, differences)._replace(drawing=drawing, data=data)

    return render


def _from_points(part: str) -> Render:
    """Figures 2, 4 and 7."""
    figure = FIGURES[part]

    def render(results: Path, name: str, link: str) -> RenderedPart:
        drawing, path = draw_points(figure, results, name), figure.path(results)
        if drawing is None:
            return RenderedPart(
                f"Figure {figure.number}: **{NOT_RUN} yet**. `dsui reproduce {figure.grid}` draws it. It stands here "
                f"once the figure.csv of that study is in results as {path.name}."
            )
        markdown = f"![{drawing.caption} {drawing.description}]({link})\n\n**{drawing.caption}** {drawing.reading}"
        return RenderedPart(markdown, drawing, path.read_text(encoding="utf-8"))

    return render


def _geometry(results: Path, _name: str, _link: str) -> RenderedPart:
    check = check_geometry(results)
    return RenderedPart(f"*Claim: {check.claim}.* It {check.verdict}.\n\n{geometry_table(results)}")


def _settings(results: Path, _name: str, _link: str) -> RenderedPart:
    """The training of every line, and which have no rows yet."""
    rows = read_paper_rows(row_files(results))
    present = {(row.method, row.task == OPEN_SET) for row in rows.rows}
    lines = ["| method | training |", "|---|---|"]
    main = frozen_settings(*SETTINGS)
    of_table_3 = {training: label for training, label in frozen_settings(OPEN_SET).items() if training not in main}
    for where, settings in (("", main), (" in Table 3", of_table_3)):
        for (_, training), label in settings.items():
            name = NAMES.get(label, label)
            waits = "" if (name, settings is of_table_3) in present else f" ({NOT_RUN} yet)"
            lines.append(f"| {name}{where}{waits} | `{training}` |")
    if rows.unused:
        listed = "; ".join(f"{method}, {training} ({data})" for data, method, training in rows.unused)
        lines += ["", f"Rows of other trainings stand on no line here: {listed}."]
    return RenderedPart("\n".join(lines))


def _joined(part: str, results: Path, *paragraphs: str) -> RenderedPart:
    """The claims about a part, then what it shows."""
    claims = claim_sentence(CLAIMS_OF[part], gather(results))
    return RenderedPart("\n\n".join(text.strip() for text in (claims, *paragraphs) if text))


def _title(part: str) -> str:
    return f"{part_title(part)}: {TITLES[part]}"


def _bars(tables: Sequence[Table]) -> str:
    """How many runs are behind each line of a figure."""
    cells: dict[str, list[Entry]] = {}
    for table in tables:
        for line in table.lines:
            cells.setdefault(line.label, []).extend(line.cells)
    listed = ", ".join(f"{label} {runs_text(of)}" for label, of in cells.items())
    return f"A long bar may leave its panel. Number of runs: {listed}."


PARTS: dict[str, Render] = {
    "counts": lambda results, *_: RenderedPart(count_table(gather(results).methods)),
    "claims": lambda results, *_: RenderedPart(claims_table(results)),
    "settings": _settings,
    "figure1": _geometry,
    **{part: _tabled(part) for part in ("table1", "table2", "table3", "table4")},
    "figure3": _drawn("figure3"),
    "figure5": _drawn("figure5", OTHER_PAIR_CELLS),
    "figure6": _drawn("figure6"),
    **{part: _from_points(part) for part in FIGURES},
}
