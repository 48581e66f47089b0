"""A table as HTML: headers with a scope, numbers aligned, the best of a column bold, quoted lines apart."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from dsui.report.tables import Line, Place, Table, digits

EMPHASIS: dict[Place, tuple[str, str]] = {"best": ("<strong>", "</strong>"), "second": ("<u>", "</u>"), None: ("", "")}
FIGURE_SPACE = "\N{FIGURE SPACE}"


def to_html(table: Table) -> str:
    """A <table> with the title as its caption and the notes below, inside a box that scrolls on its own."""
    shown = [_column(table, place) for place in range(len(table.columns))]
    body = ""
    for heading, group in groupby(enumerate(table.lines), key=lambda numbered: numbered[1].heading):
        if heading:
            body += f'<tr class="group"><th scope="rowgroup" colspan="{len(shown) + 1}">{escape(heading)}</th></tr>'
        for number, line in sorted(group, key=lambda numbered: numbered[1].quoted):
            body += _row(line, [cells[number] for cells in shown])
    label = escape(table.title, quote=True)
    return (
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0"><table>'
        f"<caption><span>{escape(table.title)}</span></caption>"
        f"<thead>{_header(table)}</thead><tbody>{body}</tbody></table></div>"
        f'<p class="note">{escape(table.caption)}</p>'
    )


def text_table(
    title: str, corner: str, columns: Sequence[str], lines: Sequence[tuple[str, Sequence[str]]], wrap: bool = True
) -> str:
    """Text instead of figures. `wrap`: long text takes several lines; without it the table scrolls."""
    kind = "text wrapped" if wrap else "text"
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    rows = [
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for name, cells in lines
    ]
    return (
        f'<div class="scroll" role="region" aria-label="{escape(title, quote=True)}" tabindex="0">'
        f'<table class="{kind}"><caption><span>{escape(title)}</span></caption>'
        f'<thead><tr><th scope="col" class="corner">{escape(corner)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _header(table: Table) -> str:
    """A row for each level; equal headers of neighbours are one."""
    levels = len(table.columns[0].lines) if table.columns else 1
    rows = []
    for level in range(levels):
        cells = f'<th scope="col" class="corner" rowspan="{levels}">{escape(table.corner)}</th>' if level == 0 else ""
        for (*_, text), group in groupby(column.lines[: level + 1] for column in table.columns):
            width = len(list(group))
            kind = "colgroup" if width > 1 else "col"
            span = f' colspan="{width}"' if width > 1 else ""
            cells += f'<th scope="{kind}"{span}>{escape(text)}</th>' if text else f"<td{span}></td>"
        rows.append(f"<tr>{cells}</tr>")
    return "".join(rows)


def _row(line: Line, cells: list[str]) -> str:
    kind = ' class="quoted"' if line.quoted else ""
    shown = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr{kind}><th scope="row">{_breakable(line.short_name)}</th>{shown}</tr>'


def _breakable(name: str) -> str:
    """A narrow screen may break it behind each _, and not in the middle of a word."""
    return escape(name).replace("_", "_<wbr>")


def _column(table: Table, place: int) -> list[str]:
    """Decimal points line up: what follows a mean takes the same room in every cell, bold or not."""
    column, cells = table.columns[place], [line.cells[place] for line in table.lines]
    deviations = [digits(cell.deviation, column) for cell in cells]
    width = max(map(len, deviations), default=0)
    marked = any(cell.mark for cell in cells)
    shown = []
    for cell, deviation, rank in zip(cells, deviations, table.places(place), strict=True):
        opening, closing = EMPHASIS[rank]
        mean = escape(cell.text) if cell.mean is None else f"{opening}{digits(cell.mean, column)}{closing}"
        spread = f" ± {deviation.rjust(width, FIGURE_SPACE)}" if deviation else ""
        shown.append(
            mean
            + (_room(f"{opening}{spread}{closing}" if spread else "", width + 3) if width else "")
            + (_room(f" {escape(cell.mark)}" if cell.mark else "", 2) if marked else "")
        )
    return shown


def _room(content: str, characters: int) -> str:
    """As wide as so many digits; spaces and points are narrower, which leaves enough room for bold digits."""
    return f'<span class="room" style="width:{characters}ch">{content}</span>'
