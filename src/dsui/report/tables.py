"""One table of figures: columns, lines, cells, and which figure of a column is best.

The best is found by the digits a reader sees, so that equal digits are equally good. `table_forms` prints tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Place = Literal["best", "second"] | None
DAGGER = "†"


@dataclass(frozen=True)
class Column:
    """`header`: one line or more, the outermost group first. `higher_is_better` None: no best.

    A figure is shown as `scale` times itself with `decimals`, in `unit`.
    """

    header: tuple[str, ...]
    higher_is_better: bool | None = None
    unit: str = ""
    scale: float = 1.0
    decimals: int = 4

    @property
    def lines(self) -> tuple[str, ...]:
        """The header as shown, with unit and direction."""
        arrow = {True: "↑", False: "↓", None: ""}[self.higher_is_better]
        return (*self.header[:-1], " ".join(filter(None, (self.header[-1], self.unit, arrow))))

    @property
    def name(self) -> str:
        return " ".join(filter(None, self.header))


@dataclass(frozen=True)
class Entry:
    """A figure, as a fraction, or `text` where there is none (None or nan). `mark` belongs to the p-value `p`."""

    mean: float | None = None
    deviation: float | None = None
    runs: int | None = None
    p: float | None = None
    mark: str | None = None
    text: str = "-"

    def __post_init__(self) -> None:
        for name in ("mean", "deviation"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                object.__setattr__(self, name, None)


@dataclass(frozen=True)
class Line:
    """One row. `quoted`: its figures are published ones, which stand apart.

    Only lines of one `group` compete for the best. A group's name stands above its lines, unless it is the label of its
    only one.
    """

    label: str
    cells: tuple[Entry, ...]
    quoted: bool = False
    group: str = ""

    @property
    def heading(self) -> str:
        """What stands above the line's group."""
        return "" if self.group == self.label else self.group

    @property
    def short_name(self) -> str:
        """The name below the heading."""
        return f"{self.label} {DAGGER}" if self.quoted else self.label

    @property
    def name(self) -> str:
        return ", ".join(filter(None, (self.heading, self.short_name)))


@dataclass(frozen=True)
class Table:
    """`note` says what the figures are; `explanation` adds what arrows, bold and daggers mean.

    Quoted lines stand below the own ones and compete with them for the best. With `beside` all lines keep their order,
    and quoted figures have a best and second best of their own.
    """

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    note: str = ""
    corner: str = "method"
    beside: bool = False

    def __post_init__(self) -> None:
        if uneven := [line.label for line in self.lines if len(line.cells) != len(self.columns)]:
            raise ValueError(f"every line needs {len(self.columns)} cells; {', '.join(uneven)} has another number.")
        if len({len(column.header) for column in self.columns}) > 1:
            raise ValueError("all columns need headers of the same number of lines.")

    @property
    def caption(self) -> str:
        return self.explanation(emphasis=True)

    def explanation(self, emphasis: bool) -> str:
        """The note and what the signs mean; `emphasis` is whether the table shows any."""
        return " ".join(filter(None, (self.note, legend_of_signs([self], emphasis))))

    def places(self, column: int) -> list[Place]:
        """Best and second best of a column, line by line; equal digits share a place, a single figure has none."""
        settings = self.columns[column]
        shown = [
            ((line.group, line.quoted and self.beside), digits(line.cells[column].mean, settings))
            for line in self.lines
        ]
        rivals: dict[tuple[str, bool], list[str]] = {}
        for group, text in shown:
            rivals.setdefault(group, []).append(text)
        named = {group: _named_places(texts, settings) for group, texts in rivals.items()}
        return [named[group].get(text) for group, text in shown]


def legend_of_signs(tables: Sequence[Table], emphasis: bool) -> str:
    """What the signs in these tables mean; `emphasis` is whether bold and underlined figures are shown."""
    directions = {column.higher_is_better for table in tables for column in table.columns}
    lines = [line for table in tables for line in table.lines]
    places = {place for table in tables for column in range(len(table.columns)) for place in table.places(column)}
    grouped = any(line.group for line in lines)
    sentences = {
        "↑ higher is better.": True in directions,
        "↓ lower is better.": False in directions,
        f"Best of {'each group' if grouped else 'a column'} bold, second best underlined.": emphasis
        and "best" in places,
        f"{DAGGER} quoted as published, not run here.": any(line.quoted for line in lines),
    }
    return " ".join(sentence for sentence, applies in sentences.items() if applies)


def _named_places(shown: Sequence[str], settings: Column) -> dict[str, Place]:
    """Best and second best among the digits of lines that compete."""
    figures = [text for text in shown if text]
    if settings.higher_is_better is None or len(figures) < 2:
        return {}
    values = sorted(set(map(float, figures)), reverse=settings.higher_is_better)
    places: dict[float, Place] = dict(zip(values, ("best", "second"), strict=False))
    return {text: places.get(float(text)) for text in figures}


def digits(value: float | None, column: Column) -> str:
    """The digits that are shown; empty without a figure."""
    return "" if value is None else f"{column.scale * value:.{column.decimals}f}"
