"""What a page is made of: a section has a heading and, in this order, words, tables, figures, images and sections."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dsui.report.figures.canvas import Drawing
from dsui.report.thumbnails import Thumbnail


@dataclass(frozen=True)
class Details:
    """A table that is folded away under its summary."""

    summary: str
    table: str


@dataclass(frozen=True, eq=False)
class Section:
    """`key` is its address within the page; `tables` are HTML."""

    key: str
    heading: str
    words: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    drawings: list[Drawing] = field(default_factory=list)
    images: list[Thumbnail] = field(default_factory=list)
    details: list[Details] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)

    def all_drawings(self) -> list[Drawing]:
        return [*self.drawings, *(drawing for inner in self.sections for drawing in inner.all_drawings())]


def slug(text: str) -> str:
    """What of a text can stand in an address and in a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "run"
