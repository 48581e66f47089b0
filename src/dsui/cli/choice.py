"""Names a user lists in an option, checked against those there are."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from dsui.errors import DsuiError


def chosen(kind: str, text: str, known: Iterable[str]) -> list[str]:
    """The names in "a,b", or all of them for "all"; a wrong one is answered with the nearest."""
    there = list(dict.fromkeys(known))
    names = there if text == "all" else list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in there:
            nearest = get_close_matches(name, there, n=1, cutoff=0)
            advice = f"did you mean {nearest[0]}? There are {', '.join(there)}" if nearest else "there is none"
            raise DsuiError(f"no {kind} {name!r}; {advice}.")
    return names
