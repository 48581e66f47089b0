"""Letters that DejaVu Sans lacks, in PNG files, where no browser chooses a font: from fonts of this machine.

Where none has a letter, the file shows a question mark. SVG files and pages keep all letters as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT = "DejaVu Sans"
"""It comes with matplotlib."""
UNKNOWN_LETTER = "?"
LAST_RESORT = "Last Resort"
"""How the family is named whose glyphs are boxes for every letter there is; newer versions of matplotlib bring it."""


@contextmanager
def with_system_fonts(figure: Figure) -> Iterator[None]:
    """Within the block the texts of a figure have fonts for all their letters, and question marks for the others."""
    from matplotlib.text import Text

    changed: list[tuple[Text, str, list[str]]] = []
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        missing = _lacking(text.get_text())
        if not missing:
            continue
        changed.append((text, text.get_text(), text.get_fontfamily()))
        fonts = {letter: _font_with(letter) for letter in missing}
        unknown = {ord(letter): UNKNOWN_LETTER for letter, font in fonts.items() if font is None}
        text.set_text(text.get_text().translate(unknown))
        text.set_fontfamily([FONT, *dict.fromkeys(font for font in fonts.values() if font is not None)])
    yield
    for text, letters, fonts_before in changed:
        text.set_text(letters)
        text.set_fontfamily(fonts_before)


def letters_without_font(figure: Figure) -> set[str]:
    """Those that are question marks in a PNG file."""
    from matplotlib.text import Text

    texts = [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]
    return {letter for text in texts for letter in _lacking(text) if _font_with(letter) is None}


def _lacking(text: str) -> list[str]:
    """Letters that the figures' own font has not; spaces and line ends need none."""
    return [letter for letter in dict.fromkeys(text) if letter.isprintable() and not _own_font_has(letter)]


@cache
def _own_font_has(letter: str) -> bool:
    from matplotlib.font_manager import findfont, get_font

    return get_font(findfont(FONT)).get_char_index(ord(letter)) > 0


@cache
def _font_with(letter: str) -> str | None:
    """The first family by name that has it; a font of coloured pictures has no outlines to draw."""
    from matplotlib.font_manager import fontManager
    from matplotlib.ft2font import FT2Font

    for entry in sorted(fontManager.ttflist, key=lambda entry: (entry.name, entry.fname)):
        if entry.style != "normal" or entry.weight not in {400, "normal"} or entry.name.startswith(LAST_RESORT):
            continue
        try:
            font = FT2Font(entry.fname)
        except (OSError, RuntimeError):
            continue
        if font.scalable and font.get_char_index(ord(letter)) > 0:
            return str(entry.name)
    return None
