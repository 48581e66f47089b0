"""What every parser of files from outside promises, tried with damaged and forged files.

Each input gives a value, or a DsuiError of one sentence, in a few seconds; never another exception, and never a signal,
which would end the tests. `pytest` tries a few inputs, the same ones every time; `pytest -m soak` tries many others.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from dsui.errors import DsuiError

LONGEST = 600
"""Characters of a sentence."""
SLOWEST = 10.0
"""Seconds; an input that passes a limit takes under one, and a busy machine may take several times as long."""
SOAK, THOUSANDS = 50, 1000
"""How many times as many inputs a soak tries, and how many are a soak."""
TOKENS = (
    b"\x00",
    b"\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"\n",
    b"null",
    b"-1",
    b"1e999",
)


def parametrized(examples: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("examples", [examples, pytest.param(SOAK * examples, marks=pytest.mark.soak)])


def attack(parse: Callable[[Any], object], inputs: SearchStrategy[Any], examples: int) -> None:
    """Try `examples` inputs."""

    def one(given_input: Any) -> None:
        check(lambda: parse(given_input))

    soaks = examples >= THOUSANDS
    chosen = settings(
        max_examples=examples,
        derandomize=not soaks,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=list(Phase) if soaks else [Phase.generate],  # to find the smallest input that fails takes long
    )
    chosen(given(inputs)(one))()


def check(parse: Callable[[], object]) -> None:
    """The promise for one input."""
    began = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parse()
    except DsuiError as error:
        check_sentence(str(error))
    assert time.monotonic() - began < SLOWEST


def check_sentence(sentence: str) -> None:
    assert 0 < len(sentence) <= LONGEST
    assert "\n" not in sentence
    assert sentence.endswith((".", "?"))
    sentence.encode()  # it can be printed


@st.composite
def damaged(draw: DrawFn, originals: Sequence[bytes], tokens: Sequence[bytes] = TOKENS) -> bytes:
    """One of the originals with one to four changes: bytes replaced, inserted, removed, repeated, or the end cut."""
    content = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        length = draw(st.integers(1, 16))
        new = draw(st.sampled_from(tokens) | st.binary(min_size=1, max_size=8))
        rest = content[start:]
        changed = {
            "replace": new + rest[len(new) :],
            "insert": new + rest,
            "remove": rest[length:],
            "repeat": rest[:length] + rest,
            "cut": b"",
        }
        content = content[:start] + changed[draw(st.sampled_from(sorted(changed)))]
    return content


VALUES: SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "x" * 5000, 10**9, -1, "digits", "folder:", "nan", "{x!r:>9}", "\x1b[31m", "\ud800"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
"""Any value that JSON and YAML can hold."""


@st.composite
def forged(draw: DrawFn, original: dict[str, Any]) -> dict[str, Any]:
    """A mapping with one to three of its values replaced, removed or added."""
    content = dict(original)
    for _ in range(draw(st.integers(1, 3))):
        key = draw(st.sampled_from(sorted(original)) | st.text(max_size=8))
        if draw(st.integers(0, 4)) == 0:
            content.pop(key, None)
        else:
            content[key] = draw(VALUES)
    return content
