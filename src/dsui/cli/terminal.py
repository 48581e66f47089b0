"""All text that goes to a terminal: names from outside cannot command it, and every console can show it.

* Names of folders, files and classes may hold control characters, with which a terminal changes its title or colours,
  moves its cursor or pastes text. They are shown as REPLACEMENT. The marks of rich (`[b]`) are plain text.
* A console that knows no arrow gets `->`. What has no plain form is shown as a question mark.
* A name that is no text in the file system's encoding is shown with REPLACEMENT for its bytes.
"""

from __future__ import annotations

import codecs
import sys
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
PLAIN = {
    "→": "->",
    "←": "<-",
    "↑": "^",
    "↓": "v",
    "±": "+-",
    "\N{MULTIPLICATION SIGN}": "x",
    "✓": "+",
    "†": "*",
    "≤": "<=",
    "≥": ">=",
    "≈": "~",
    "·": ".",
    "ε": "e",
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "\N{MINUS SIGN}": "-",
}
"""What dsui itself prints beyond ASCII; accents and points of ellipsis are decomposed."""
TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_BYTES = "\udc00"
"""Plus a byte, what Python makes of a byte that is no text (PEP 383)."""
_ERRORS = "dsui.plain"


def harmless(text: str) -> str:
    """The text with REPLACEMENT for what a terminal obeys or cannot be sent: control characters other than line feed
    and tab, marks that turn the direction of writing around, and bytes of no encoding."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        REPLACEMENT if char in TURNING or (unicodedata.category(char) in {"Cc", "Cs"} and char not in "\n\t") else char
        for char in text
    )


def print_line(text: object, err: bool = False) -> None:
    """Print a line to stdout or stderr."""
    stream = _stream(err)
    if stream is not None:
        stream.write(harmless(f"{text}\n"))
        stream.flush()


def write(text: str) -> None:
    """Write results in a format for programs to stdout, unchanged unless stdout is a terminal."""
    stream = _stream(err=False)
    if stream is not None:
        stream.write(harmless(text) if stream.isatty() else text)
        stream.flush()


def stdout_console() -> Console:
    """A console for tables on stdout."""
    return _console(stderr=False, quiet=False)


def stderr_console(quiet: bool) -> Console:
    """Progress and notes go to stderr, so that stdout holds nothing but results."""
    return _console(stderr=True, quiet=quiet)


def adapt_streams() -> None:
    """Let stdout and stderr of this process show what they cannot encode in plain characters, instead of raising."""
    for err in (False, True):
        _stream(err)


def _console(*, stderr: bool, quiet: bool) -> Console:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class HarmlessConsole(Console):
        """Every text of a table, a bar or a sentence passes here; rich's own commands are segments with `control`."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(harmless(segment.text), segment.style)

    _stream(stderr)
    return HarmlessConsole(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False)


def _stream(err: bool) -> TextIO | None:
    """stdout or stderr, if the shell left it open, with plain characters for what it cannot encode."""
    stream: Any = sys.stderr if err else sys.stdout
    if getattr(stream, "errors", _ERRORS) != _ERRORS and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=_ERRORS)
    return stream  # type: ignore[no-any-return]


def _in_plain_characters(error: UnicodeError) -> tuple[str | bytes, int]:
    """A handler of encoding errors: the plain form of a character, or the byte of a name that is no text."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    char = error.object[error.start]
    byte = ord(char) - ord(_BYTES)
    return bytes([byte]) if 0x80 <= byte <= 0xFF else _plain(char), error.start + 1


def _plain(char: str) -> str:
    ascii_part = unicodedata.normalize("NFKD", char).encode("ascii", "ignore").decode()
    return PLAIN.get(char) or ascii_part or "?"


codecs.register_error(_ERRORS, _in_plain_characters)
