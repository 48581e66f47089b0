"""One self-contained HTML file about trained runs: it loads nothing from elsewhere.

It follows the light or dark setting of the screen, fits a phone, prints well, and needs no script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from importlib.resources import files
from pathlib import Path

from dsui.checks import require
from dsui.errors import DsuiError, RunError
from dsui.excerpt import shorten
from dsui.report.figures.canvas import to_inline, to_png, to_svg
from dsui.report.figures.system_fonts import letters_without_font
from dsui.report.section import Section
from dsui.report.terms import explained
from dsui.runs.files import write_atomic

TEMPLATE = "page.html.j2"
INVALID = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def page(title: str, lead: str, sections: Sequence[Section], explained_terms: Collection[str] = ()) -> str:
    """The HTML of these sections, each a heading below the title. `explained_terms`: words of `dsui.report.terms` that
    the sections explain themselves."""
    require("jinja2", "matplotlib")
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"inline": lambda drawing: Markup(to_inline(drawing)), "html": Markup}  # noqa: S704
    template = environment.from_string(files("dsui.report").joinpath(TEMPLATE).read_text(encoding="utf-8"))
    terms = explained(sections, explained_terms)
    return valid(template.render(title=title, lead=lead, sections=sections, terms=terms))


def valid(text: str) -> str:
    """With U+FFFD for what HTML and SVG may not contain: control characters, and bytes of names that are no text."""
    return INVALID.sub("\N{REPLACEMENT CHARACTER}", text)


def write_page(path: Path, html: str) -> None:
    _write(path, html.encode())


def write_figures(
    folder: Path, sections: Sequence[Section], warn: Callable[[str], None] = lambda _sentence: None
) -> list[Path]:
    """Every figure as NAME.svg and NAME.png. `warn` is told of letters that no font here can draw into a PNG."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DsuiError(f"{folder} cannot be created ({error.strerror}); choose another --figures.") from error
    written = []
    unknown: set[str] = set()
    for drawing in (drawing for section in sections for drawing in section.all_drawings()):
        unknown |= letters_without_font(drawing.figure)
        for ending, content in (("svg", valid(to_svg(drawing)).encode()), ("png", to_png(drawing))):
            written.append(folder / f"{drawing.name}.{ending}")
            _write(written[-1], content)
    if unknown:
        warn(
            f"No font of this machine has {shorten(' '.join(sorted(unknown)))}; PNG files show ? instead. The page and "
            "the SVG files keep every letter."
        )
    return written


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomic(path, lambda stream: stream.write(content))
    except RunError as error:
        why = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
        raise DsuiError(f"{path} cannot be written ({why}); choose another place.") from error
