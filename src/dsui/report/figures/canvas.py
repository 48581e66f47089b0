"""The paper under every figure: size, colours, line styles, and the three forms in which a figure leaves.

A figure is one panel, narrow enough for a phone; several stand beside each other on a page. Series differ in colour
(Okabe and Ito's, darkened to 3:1 on white), in dashes and in markers, so that they survive grey print. Inside a page
every colour becomes a CSS variable, so that one figure serves a light and a dark screen. Text stays text. The same data
give the same bytes: no dates, no random identifiers, no settings of the user's own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import count, cycle
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar
from xml.etree import ElementTree as ET

from dsui.report.installed import require

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
"""The page gives these a light and a dark value."""
WIDTH, HEIGHT = 4.3, 2.9
"""Inches: of a panel, without what a legend adds."""
LEGEND_LINE = 0.2
PIXELS_PER_INCH = 200
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "text.usetex": False,
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


class Pen(NamedTuple):
    """How one series is drawn."""

    color: str
    dashes: str | tuple[float, tuple[float, ...]]
    marker: str


def pens() -> Iterator[Pen]:
    """One for each series, no two alike among the first thirty."""
    broken = ((5, 1.5), (1.5, 1.2), (6, 1.5, 1.5, 1.5), (3, 1.2, 1.2, 1.2, 1.2, 1.2))
    dashes: list[str | tuple[float, tuple[float, ...]]] = ["-", *((0, lengths) for lengths in broken)]
    colors = cycle((BLUE, VERMILION, GREEN, PURPLE, OCHRE, SKY))
    markers = cycle("osD^vPX")
    for place in count():
        yield Pen(next(colors), dashes[(place + place // 30) % len(dashes)], next(markers))


@dataclass(frozen=True, eq=False)
class Drawing:
    """A finished figure. `name` becomes its file name, `description` is for whoever cannot see it."""

    name: str
    figure: Figure
    caption: str
    description: str


P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in the style above, whatever the user's own settings are, and leave those as they were."""

    @wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> R:
        require("matplotlib")
        from matplotlib import rc_context, rcdefaults, rcParams

        with rc_context():
            rcdefaults()
            rcParams.update(STYLE)  # type: ignore[arg-type]
            return draw(*args, **kwargs)

    return in_style


def panel(height: float = HEIGHT, width: float = WIDTH) -> tuple[Figure, Axes]:
    """An empty figure with one pair of axes; call it inside `styled`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def legend_below(figure: Figure, axes: Axes, columns: int = 2) -> None:
    """What the lines mean, under the axes, which keep their height."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    columns = min(columns, len(labels)) if longest <= 22 else 1
    lines = -(-len(labels) // max(columns, 1))
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * lines)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


@styled
def to_png(drawing: Drawing) -> bytes:
    return _saved(drawing.figure, "png")


@styled
def to_svg(drawing: Drawing) -> str:
    """A file of its own, on white."""
    return _saved(drawing.figure, "svg").decode()


@styled
def to_inline(drawing: Drawing) -> str:
    """The <svg> element of a page: named for screen readers, in the page's colours, with identifiers of its own."""
    root = ET.fromstring(_saved(drawing.figure, "svg", transparent=True))  # noqa: S314 - we wrote it
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("metadata", "style")):  # who made it, and a style that would hold for the whole page
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
"""Digits below a hundredth of a point."""


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
            element.set(name, _in_variables(_REFERENCE.sub(rf"{prefix}-\g<0>", value)))


def _in_variables(style: str) -> str:
    for color, variable in VARIABLES.items():
        style = style.replace(color, f"var({variable})")
    return style.replace(FONT, "var(--figure-font)")


def _saved(figure: Figure, form: str, transparent: bool = False) -> bytes:
    stream = io.BytesIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type")) if form == "svg" else {"Software": None}
    figure.savefig(stream, format=form, dpi=PIXELS_PER_INCH, metadata=metadata, transparent=transparent)
    return stream.getvalue()
