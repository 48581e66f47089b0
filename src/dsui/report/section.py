"""The parts of a page. A section has a heading and, in this order, paragraphs, tables, figures, images, folded tables
and inner sections."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dsui.report.figures.canvas import Drawing
from dsui.report.thumbnails import Thumbnail


@dataclass(frozen=True)
class FoldedTable:
    """A table, as HTML, that opens with a click on its summary."""

    summary: str
    table: str


@dataclass(frozen=True, eq=False)
class Section:
    """`key` is its id within the page, for links; `tables` are HTML."""

    key: str
    heading: str
    paragraphs: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    drawings: list[Drawing] = field(default_factory=list)
    images: list[Thumbnail] = field(default_factory=list)
    folded_tables: list[FoldedTable] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)

    def all_drawings(self) -> list[Drawing]:
        return [*self.drawings, *(drawing for inner in self.sections for drawing in inner.all_drawings())]


def slug(text: str) -> str:
    """A text without the characters that cannot be part of a link or a file name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "run"
