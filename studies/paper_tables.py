"""The paper's tables with our figures: each method's lines, and below them its printed one, marked with a dagger.

Ours and the printed figures have a best and second best each. A cell that the paper leaves open is "-"; one that waits
for rows is "not run". A line that the paper does not have stands in a table once it has rows there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dsui.evaluation.paper_tables import paper_rows
from dsui.evaluation.statistics import ALIKE, DIFFERENT, LEVEL, Summary, mark, obstacle, t_test
from dsui.experiments.grid_file import load_grid
from dsui.report.columns import SCORES, Figure
from dsui.report.comparison_lines import MIXTURES
from dsui.report.metric_formats import METRICS
from dsui.report.tables import Column, Entry, Line, Table
from studies.paper_cells import (
    ABLATION_CELLS,
    BACKBONES,
    CELLS,
    DATA,
    RESNET,
    SHOWN,
    Figures,
    Published,
    ablation_line,
    in_paper,
    place_name,
    printed,
)
from studies.paper_lines import ABLATION, BEYOND, OURS, RIVALS, STREAMS
from studies.paper_standings import NOT_RUN

FULL = "dsui (K 8, push, reg)"
"""The line of Table 1 with all parts."""
SIGNS = {"reg": "✓", "kl": "○", "None": "-"}
"""How the paper shows which regularizer a line of Table 1 has."""


def comparison_table(part: str, title: str, figures: Figures) -> Table:
    """One of Tables 2 to 4."""
    cells, quoted = CELLS[part], printed(part)
    groups = [*([name] for name in RIVALS.values()), list(STREAMS), *([name] for name in BEYOND.values())]
    lines = []
    for group in groups:
        for name in group:
            if group[0] in quoted or any(cell in figures.get(name, {}) for cell in cells):
                own = (_own(figures, name, cell, OURS, planned=_is_planned(group[0], cell)) for cell in cells)
                lines.append(Line(name, tuple(own)))
        if group[0] in quoted:
            lines.append(Line(group[0], tuple(_quoted(quoted[group[0]].get(cell)) for cell in cells), quoted=True))
    return _table(title, [_column_name(part, cell) for cell in cells], lines, f"{OURS} by its classifier")


def ablation_table(title: str, figures: Figures) -> Table:
    """Table 1, and behind its eight lines those that only the grid has."""
    quoted = printed("table1")
    shown = {ablation_line(row): _signs(row.settings or {}) for row in paper_rows("table1")}
    lines = []
    for label in dict.fromkeys([*shown, *(cell.label for cell in load_grid(ABLATION).cells)]):
        name = shown.get(label, label.removeprefix("dsui (").removesuffix(")"))
        for ending in ("", MIXTURES):
            own = (_own(figures, f"{label}{ending}", cell, FULL, planned=True) for cell in ABLATION_CELLS)
            lines.append(Line(f"{name}{ending}", tuple(own)))
        if label in quoted:
            lines.append(Line(name, tuple(_quoted(quoted[label].get(cell)) for cell in ABLATION_CELLS), quoted=True))
    table = _table(title, [_measure(cell) for cell in ABLATION_CELLS], lines, f"{shown[FULL]} by its classifier")
    return replace(table, note=f"{table.note} {SIGNS['kl']}: the KL divergence in place of Reg.", corner="parts")


def runs_text(cells: Iterable[Entry]) -> str:
    """ "5", "3-5", or "-" without any."""
    counts = [entry.runs for entry in cells if entry.runs is not None]
    return "-".join(map(str, dict.fromkeys((min(counts), max(counts))))) if counts else "-"


def _own(figures: Figures, line: str, cell: Figure, reference: str, *, planned: bool) -> Entry:
    """A figure of ours, with its mark against the line `reference`."""
    summary, against = figures.get(line, {}).get(cell), figures.get(reference, {}).get(cell)
    if summary is None:
        return Entry(text=NOT_RUN if planned else "-")
    if line == reference or against is None or obstacle(summary, against):
        return _entry(summary)
    p = t_test(summary, against)
    return replace(_entry(summary), p=p, mark=mark(p))


def _quoted(published: Published | None) -> Entry:
    return Entry() if published is None else replace(_entry(published.summary), mark=published.mark or None)


def _entry(summary: Summary) -> Entry:
    return Entry(summary.mean, summary.deviation, summary.runs)


def _is_planned(line: str, cell: Figure) -> bool:
    """The paper's methods where it has figures of them; other lines on ResNet18 alone."""
    of_paper = any(line in printed(table) for table in ("table2", "table3", "table4"))
    return in_paper(line, cell) if of_paper else cell.backbone == RESNET


def _table(title: str, columns: Sequence[str], lines: Iterable[Line], reference: str) -> Table:
    counted = tuple(replace(line, cells=(Entry(text=runs_text(line.cells)), *line.cells)) for line in lines)
    note = (
        f"Mean ± deviation over runs. {DIFFERENT} differs from {reference}, {ALIKE} does not (Student's t-test, "
        f"p < {LEVEL}); the paper's marks are as printed. Ours and the paper's figures have a best each."
    )
    header = (Column(("runs",)), *(replace(SHOWN, header=(name,)) for name in columns))
    return Table(title, header, counted, note, beside=True)


def _column_name(part: str, cell: Figure) -> str:
    if part == "table2":
        return f"{DATA[cell.data]} {BACKBONES[cell.backbone or RESNET]}"
    return f"{place_name(cell)} {_measure(cell)}" if part == "table3" else _measure(cell)


def _measure(cell: Figure) -> str:
    metric = METRICS[cell.metric].title
    return metric if cell.metric == "accuracy" else f"{metric} {SCORES[cell.score or '']}"


def _signs(settings: Mapping[str, object]) -> str:
    """ "push ✓, Reg ○, K 8"."""
    push, regularizer, components = settings["push"], settings["regularizer"], settings["components"]
    return f"push {'✓' if push else '-'}, Reg {SIGNS[str(regularizer)]}, K {components}"
