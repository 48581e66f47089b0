"""A table's forms: terminal, Markdown, LaTeX, CSV, JSON.

People see mean ± deviation in a column's unit and decimals, the best of a column bold and the second best underlined.
Programs (CSV, JSON) get unrounded fractions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain, groupby
from typing import NamedTuple

from rich import box
from rich import table as rich_table
from rich.console import Group
from rich.text import Text

from dsui import spreadsheet
from dsui.report.tables import DAGGER, Line, Place, Table, digits


class _Spacing(NamedTuple):
    """Characters between a mean and its deviation, and how many between two columns in the terminal."""

    spread: str
    gap: int


ROOMY, TIGHT = _Spacing(" ± ", 3), _Spacing("±", 2)


class _CellText(NamedTuple):
    """A cell as text: spaces before, what is emphasised, spaces behind, the mark."""

    before: str
    body: str
    behind: str
    mark: str
    place: Place


_Section = list[tuple[Line, list[_CellText]]]
"""Lines that stand together, each with its cells."""


def to_terminal(table: Table, width: int | None = None, styled: bool = True) -> Group:
    """For a rich console. `styled`: bold and underlined, unless it writes to a file or a pipe."""
    title, caption = Text(table.title, style="bold"), Text(table.explanation(styled), style="dim")
    return Group(title, *terminal_body(table, width), Text(""), caption)


def terminal_body(table: Table, width: int | None = None) -> list[Text | rich_table.Table]:
    """Without title and explanation.

    A table wider than `width` is set tight; one that is still wider is continued below with the remaining columns.
    """
    spacing = (
        ROOMY
        if len(_column_groups(table, ROOMY, width)) == 1 or len(_column_groups(table, TIGHT, width)) > 1
        else TIGHT
    )
    parts: list[Text | rich_table.Table] = []
    for places in _column_groups(table, spacing, width):
        parts += [Text(""), *_terminal_block(table, places, spacing)]
    return parts


def _terminal_block(table: Table, places: Sequence[int], spacing: _Spacing) -> list[Text | rich_table.Table]:
    """Some of the columns: the header, then all lines, those of a group below its name."""
    widths = _widths(table, spacing.spread)
    sections = _sections(table, spacing.spread)
    if all(section[0][0].heading == "" for section in sections):
        return [_terminal_lines(table, places, spacing, widths, sections)]
    parts: list[Text | rich_table.Table] = [_terminal_lines(table, places, spacing, widths, [])]
    for heading, group in groupby(sections, lambda section: section[0][0].heading):
        lines = _terminal_lines(table, places, spacing, widths, list(group))
        lines.show_header = False
        parts += [Text(heading), lines]
    return parts


def _terminal_lines(
    table: Table, places: Sequence[int], spacing: _Spacing, widths: Sequence[int], sections: Sequence[_Section]
) -> rich_table.Table:
    shown = rich_table.Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    shown.collapse_padding = spacing.gap == TIGHT.gap
    label_width = _label_width(table) if any(line.heading for line in table.lines) else None
    shown.add_column(table.corner, vertical="bottom", overflow="fold", min_width=label_width)
    for place in places:
        heading = "\n".join(line.rjust(widths[place]) for line in table.columns[place].lines)
        shown.add_column(Text(heading), overflow="fold")
    for section in sections:
        for line, cells in section:
            texts = (_styled(cells[place], widths[place]) for place in places)
            shown.add_row(Text(_terminal_label(line)), *texts, end_section=line is section[-1][0])
    return shown


def to_markdown(table: Table) -> str:
    """A GitHub table whose source is aligned too; the title is bold above it, the caption below."""
    emphasis = {"best": ("**", "**"), "second": ("<ins>", "</ins>"), None: ("", "")}
    headings = (" ".join(filter(None, column.lines)) for column in table.columns)
    rows = [[_escaped(text, _MARKDOWN) for text in (table.corner, *headings)]]
    for line, shown in chain(*_sections(table)):
        cells = []
        for cell in shown:
            opening, closing = emphasis[cell.place]
            cells.append(f"{opening}{_escaped(cell.body, _MARKDOWN)}{closing}{cell.mark.rstrip()}")
        rows.append([_escaped(line.name, _MARKDOWN), *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    body = "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:]))
    return f"**{_escaped(table.title, _MARKDOWN)}**\n\n{body}\n\n{_escaped(table.caption, _MARKDOWN)}\n"


def to_latex(table: Table) -> str:
    r"""A `table` environment for \usepackage{booktabs,amssymb}; equal headers of neighbours are one."""
    emphasis = {"best": r"\textbf{%s}", "second": r"\underline{%s}", None: "%s"}
    body = []
    for section in _sections(table):
        body.append(r"\midrule")
        for line, shown in section:
            cells = [
                emphasis[cell.place] % _escaped(cell.body, _LATEX) + _escaped(cell.mark.rstrip(), _LATEX)
                for cell in shown
            ]
            body.append(" & ".join([_escaped(line.name, _LATEX), *cells]) + r" \\")
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escaped(table.title.rstrip('.'), _LATEX)}. {_escaped(table.caption, _LATEX)}}}",
            rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"\toprule",
            *_latex_header(table),
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def to_csv(table: Table) -> str:
    """One line a method, five fields a column: fraction, deviation, runs, p, mark."""
    parts = ("", " deviation", " runs", " p", " mark")
    rows: list[list[object]] = [
        [table.corner, "quoted", *(column.name + part for column in table.columns for part in parts)]
    ]
    for line, _ in chain(*_sections(table)):
        cells = (field for c in line.cells for field in (c.mean, c.deviation, c.runs, c.p, c.mark))
        label = f"{line.heading}, {line.label}" if line.heading else line.label
        rows.append([label, line.quoted, *cells])
    return spreadsheet.to_csv(rows)


def to_json(table: Table) -> str:
    """The whole table; each cell has its place in the column, and its text where it has no figure."""
    places = [table.places(column) for column in range(len(table.columns))]
    content = asdict(table)
    for row, line in enumerate(content["lines"]):
        for column, cell in enumerate(line["cells"]):
            cell["place"] = places[column][row]
            if cell["mean"] is not None:
                del cell["text"]
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode(errors="backslashreplace").decode()  # names that are no UTF-8, as JSON escapes them


def _sections(table: Table, spread: str = ROOMY.spread) -> list[_Section]:
    """Group by group own lines, then quoted ones, each with its cells; without empty sections. All lines of a group
    together where quoted ones stand beside the own."""
    columns = [_cell_texts(table, place, spread) for place in range(len(table.columns))]
    rows = [(line, [column[row] for column in columns]) for row, line in enumerate(table.lines)]
    headings = dict.fromkeys(line.heading for line in table.lines)
    sections: dict[tuple[str, bool], _Section] = {
        (heading, quoted): [] for heading in headings for quoted in (False, True)
    }
    for line, cells in rows:
        sections[line.heading, line.quoted and not table.beside].append((line, cells))
    return [section for section in sections.values() if section]


def _cell_texts(table: Table, place: int, spread: str) -> list[_CellText]:
    column, cells = table.columns[place], [line.cells[place] for line in table.lines]
    means = [digits(cell.mean, column) or cell.text for cell in cells]
    deviations = [digits(cell.deviation, column) for cell in cells]
    marks = [f" {cell.mark}" if cell.mark else "" for cell in cells]
    mean_width, deviation_width, mark_width = (max(map(len, texts), default=0) for texts in (means, deviations, marks))
    bodies = [
        f"{mean}{spread}{deviation.rjust(deviation_width)}" if deviation else mean
        for mean, deviation in zip(means, deviations, strict=True)
    ]
    width = mean_width + (len(spread) + deviation_width if deviation_width else 0)
    padded = []
    for mean, body, mark, rank in zip(means, bodies, marks, table.places(place), strict=True):
        before = " " * (mean_width - len(mean))
        padded.append(_CellText(before, body, " " * (width - len(before) - len(body)), mark.ljust(mark_width), rank))
    return padded


def _widths(table: Table, spread: str) -> list[int]:
    rows = [cells for _, cells in chain(*_sections(table, spread))]
    return [
        max(map(len, (*column.lines, *("".join(row[place][:4]) for row in rows))))
        for place, column in enumerate(table.columns)
    ]


def _column_groups(table: Table, spacing: _Spacing, width: int | None) -> list[list[int]]:
    """The columns in groups that fit beside the labels, at least one column to a group."""
    widths = _widths(table, spacing.spread)
    labels = _label_width(table)
    groups: list[list[int]] = [[]]
    for column in range(len(widths)):
        taken = labels + sum(widths[other] + spacing.gap for other in (*groups[-1], column))
        if groups[-1] and width is not None and taken > width:
            groups.append([])
        groups[-1].append(column)
    return groups


def _terminal_label(line: Line) -> str:
    return f"  {line.short_name}" if line.heading else line.name


def _label_width(table: Table) -> int:
    return max(map(len, (table.corner, *map(_terminal_label, table.lines))))


def _styled(cell: _CellText, width: int) -> Text:
    style = {"best": "bold", "second": "underline", None: ""}[cell.place]
    free = width - len("".join(cell[:4]))
    return Text.assemble(" " * free, cell.before, (cell.body, style), cell.behind, cell.mark)


def _latex_header(table: Table) -> list[str]:
    """A line for each level; the innermost has the corner."""
    rows = []
    levels = len(table.columns[0].lines) if table.columns else 1
    for level in range(levels - 1):
        cells = [""]
        for (*_, text), group in groupby(column.lines[: level + 1] for column in table.columns):
            cells.append(rf"\multicolumn{{{len(list(group))}}}{{c}}{{{_escaped(text, _LATEX)}}}")
        rows.append(" & ".join(cells) + r" \\")
    names = (_escaped(column.lines[-1], _LATEX) for column in table.columns)
    return [*rows, " & ".join([_escaped(table.corner, _LATEX), *names]) + r" \\"]


_MARKDOWN = {character: f"\\{character}" for character in "\\`*_|<>[]#~"}
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{character: f"${character}$" for character in "<>|"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "\u00d7": r"$\times$",
    "✓": r"$\checkmark$",
    DAGGER: r"$^{\dagger}$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\to$",
    "ε": r"$\varepsilon$",
}


def _escaped(text: str, special: dict[str, str]) -> str:
    return "".join(special.get(character, character) for character in text)
