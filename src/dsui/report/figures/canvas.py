"""What all figures share: size, colours, line styles, and the three output formats: SVG, PNG, and SVG inside a page.

A figure is one panel, narrow enough for a phone; several stand beside each other on a page. Series differ in colour
(Okabe and Ito's, darkened to 3:1 on white), in dashes and in markers, so that they survive grey print. Inside a page
every colour becomes a CSS variable, so that one figure serves a light and a dark screen. Text stays text. The same data
give the same bytes: no dates, no random identifiers, no matplotlib settings of the user.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import accumulate, count, cycle, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar
from xml.etree import ElementTree as ET

from dsui.checks import require
from dsui.report.figures.system_fonts import with_system_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, PAPER = "#1b1b1f", "#c9c9d2", "#ffffff"
BLUE, VERMILION, GREEN, PURPLE, OCHRE, SKY = "#0072b2", "#d55e00", "#00875f", "#a8488a", "#a06a00", "#3f8fbf"
VARIABLES = {
    INK: "--ink",
    FAINT: "--faint",
    PAPER: "--paper",
    BLUE: "--blue",
    VERMILION: "--vermilion",
    GREEN: "--green",
    PURPLE: "--purple",
    OCHRE: "--ochre",
    SKY: "--sky",
}
"""The page gives each of these a light and a dark value."""
WIDTH, HEIGHT = 4.3, 2.9
"""Of a panel in inches, without the height of its legend."""
LEGEND_LINE = 0.2
LEGEND_HANDLE, LEGEND_LETTER = 45.0, 5.2
"""Widths in points: of an entry of a legend without its text, and of each letter."""
PIXELS_PER_INCH = 200
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "text.usetex": False,
    "text.parse_math": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.4,
    "legend.labelspacing": 0.3,
    "svg.fonttype": "none",
    "svg.hashsalt": "dsui",
    "path.simplify": True,
}
FONT = "'DejaVu Sans'"


class SeriesStyle(NamedTuple):
    """How one series is drawn."""

    color: str
    dashes: str | tuple[float, tuple[float, ...]]
    marker: str


def class_colors() -> Iterator[str]:
    """A colour for each class where only dots tell them apart; the first ten differ."""
    return cycle((BLUE, VERMILION, GREEN, PURPLE, OCHRE, SKY, "#d6336c", "#6f9e12", "#8460d8", "#868e96"))


def series_styles() -> Iterator[SeriesStyle]:
    """A style for each series; the first thirty differ."""
    broken = ((5, 1.5), (1.5, 1.2), (6, 1.5, 1.5, 1.5), (3, 1.2, 1.2, 1.2, 1.2, 1.2))
    dashes: list[str | tuple[float, tuple[float, ...]]] = ["-", *((0, lengths) for lengths in broken)]
    # the two blues are apart, so that their dashes differ as well
    colors = cycle((BLUE, VERMILION, GREEN, SKY, OCHRE, PURPLE))
    markers = cycle("osD^vPX")
    for place in count():
        yield SeriesStyle(next(colors), dashes[(place + place // 30) % len(dashes)], next(markers))


@dataclass(frozen=True, eq=False)
class Drawing:
    """A finished figure. `name` becomes its file name; `description` is for readers who cannot see it; `reading` is
    one sentence that says how to read it: what is good, and what is not."""

    name: str
    figure: Figure
    caption: str
    description: str
    reading: str


P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in the style above, and leave the user's matplotlib settings unread and unchanged."""

    @wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> R:
        require("matplotlib")
        from matplotlib import rc_context, rcdefaults, rcParams

        with rc_context(), warnings.catch_warnings():
            # a letter that the font lacks gets a box in the layout, and its own form in a browser
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            rcdefaults()
            rcParams.update(STYLE)  # type: ignore[arg-type]
            return draw(*args, **kwargs)

    return in_style


def new_panel(height: float = HEIGHT, width: float = WIDTH) -> tuple[Figure, Axes]:
    """An empty figure with one pair of axes; call it inside `styled`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def new_panels(
    rows: int, columns: int, height: float = HEIGHT, sharex: bool = False, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """An empty figure with several pairs of axes, row by row, each as large as a panel."""
    figure, axes = new_panel(height * rows, WIDTH * columns)
    axes.remove()
    grid = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    return figure, [each for row in grid for each in row]


def add_legend_below(figure: Figure, *panels: Axes) -> None:
    """One legend under all panels, in as many columns as fit; the figure grows so that the axes keep their height."""
    named: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    labels, width = list(named), figure.get_figwidth()
    columns = next(count for count in (8, 4, 3, 2, 1) if count == 1 or _legend_fits(labels, count, width))
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * -(-len(labels) // columns))
    figure.legend(list(named.values()), labels, loc="outside lower center", ncols=columns)


def _legend_fits(labels: list[str], columns: int, width: float) -> bool:
    """Whether a legend, filled column by column, is narrower than the figure."""
    size, longer = divmod(len(labels), columns)
    ends = [0, *accumulate([size + 1] * longer + [size] * (columns - longer))]
    parts = [labels[start:end] for start, end in pairwise(ends) if end > start]
    return sum(LEGEND_HANDLE + LEGEND_LETTER * max(map(len, part)) for part in parts) < 72 * width


@styled
def to_png(drawing: Drawing) -> bytes:
    """Letters are drawn here and not by a browser: see `system_fonts`."""
    with with_system_fonts(drawing.figure):
        return _render(drawing.figure, "png")


@styled
def to_svg(drawing: Drawing) -> str:
    """A stand-alone SVG file on white."""
    return _render(drawing.figure, "svg").decode()


@styled
def to_inline(drawing: Drawing) -> str:
    """The <svg> element of a page: labelled for screen readers, in the page's colours, with unique identifiers."""
    root = ET.fromstring(_render(drawing.figure, "svg", transparent=True))  # noqa: S314 - we wrote it
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("metadata", "style")):  # metadata, and a style that would apply to the whole page
                parent.remove(child)
    for element in root.iter():
        element.text, element.tail = (element.text or "").strip(), None
        element.tag = element.tag.rpartition("}")[2]
        for name in list(element.attrib):
            if name.startswith("{"):
                element.set(name.rpartition("}")[2], element.attrib.pop(name))
    used = {name for element in root.iter() for value in element.attrib.values() for name in _REFERENCE.findall(value)}
    for element in root.iter():
        _adapt(element, drawing.name, used)
    box = root.get("viewBox", "")
    root.attrib.clear()
    label = f"{drawing.caption} {drawing.description}".strip()
    root.attrib.update({"viewBox": box, "role": "img", "aria-label": label})
    return ET.tostring(root, encoding="unicode")


_REFERENCE = re.compile(r"(?<=url\(#)[\w-]+(?=\))|(?<=^#)[\w-]+$")
"""url(#NAME), or #NAME alone."""
_TOO_FINE = re.compile(r"(\.\d\d)\d+")
"""Digits finer than a hundredth of a point."""


def _adapt(element: ET.Element, prefix: str, used: set[str]) -> None:
    for name, value in list(element.attrib.items()):
        if name == "id":
            if value in used:
                element.set("id", f"{prefix}-{value}")
            else:
                del element.attrib["id"]
        elif name == "d":
            element.set(name, _TOO_FINE.sub(r"\1", " ".join(value.split())))
        else:
            element.set(name, _use_css_variables(_REFERENCE.sub(rf"{prefix}-\g<0>", value)))


def _use_css_variables(style: str) -> str:
    for color, variable in VARIABLES.items():
        style = style.replace(color, f"var({variable})")
    return style.replace(FONT, "var(--figure-font)")


def _render(figure: Figure, form: str, transparent: bool = False) -> bytes:
    stream = io.BytesIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type")) if form == "svg" else {"Software": None}
    figure.savefig(stream, format=form, dpi=PIXELS_PER_INCH, metadata=metadata, transparent=transparent)
    return stream.getvalue()
