"""The answer to a name that does not exist: the nearest one that does."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from dsui.excerpt import excerpt

LONGEST = 100
"""Characters of a name that are compared; the time is quadratic in them."""
SIMILAR = 0.5
"""How similar two names must be, from 0 to 1, for one to be suggested in place of the other."""


def nearest(name: str, choices: Iterable[str], similarity: float = SIMILAR) -> str | None:
    """The choice most similar to `name`; None if none is similar enough, which never happens with a similarity of 0."""
    found = get_close_matches(name[:LONGEST].lower(), list(choices), n=1, cutoff=similarity)
    return found[0] if found else None


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> str:
    """The message for a name that is none of the choices: no method 'dsu'; did you mean dsui? There are dsui, msp."""
    every = list(dict.fromkeys(choices))
    suggestion = nearest(name, every)
    advice = f"did you mean {suggestion}? There" if suggestion else "there"
    rest = f"are {', '.join(every)}" if every else "is none"
    return f"no {kind} {excerpt(name)}; {advice} {rest}."
