"""The tables of a comparison in a terminal: one below the other, then the legend, then what the signs mean."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table as Grid
from rich.text import Text

from dsui.report.comparison_legend import Legend
from dsui.report.comparison_tables import QuestionTables
from dsui.report.table_forms import terminal_body
from dsui.report.tables import legend_of_signs


def to_terminal(comparison: QuestionTables, width: int, styled: bool) -> Group:
    """For a rich console; `styled` as in `table_forms`."""
    parts: list[Text | Grid] = [Text(comparison.title, style="bold")]
    for table in comparison.tables:
        _, *body = terminal_body(table, width)
        parts += [Text(""), Text(table.title, style="italic"), *body]
    parts += _legend(comparison.legend)
    note = " ".join(filter(None, (comparison.note, legend_of_signs(comparison.tables, styled))))
    return Group(*parts, *([Text(""), Text(note, style="dim")] if note else []))


def _legend(legend: Legend) -> list[Text | Grid]:
    entries = [("All", legend.shared), *legend.entries] if legend.shared else list(legend.entries)
    if not entries:
        return []
    grid = Grid.grid(padding=(0, 2))
    for name, settings in entries:
        grid.add_row(name, Text(settings))
    return [Text(""), Text("Settings", style="italic"), grid]
