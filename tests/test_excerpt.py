"""What a message shows of a value: its beginning, and never more than that is built."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsui.excerpt import SHOWN, excerpt, shorten

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.lists(inner).map(tuple),
)


@pytest.mark.parametrize(
    "value", ["it's", b"x", 3, -1.5, None, True, [1, "a"], {"a": [2]}, (1, 2), [], {}, date(2024, 1, 2)]
)
def test_a_short_value_is_shown_as_it_is(value: object) -> None:
    assert excerpt(value) == repr(value)


@settings(max_examples=50)
@given(PLAIN)
def test_no_excerpt_is_long_or_of_several_lines(value: object) -> None:
    shown = excerpt(value)
    assert len(shown) <= SHOWN
    assert "\n" not in shown
    assert shown.isprintable()


def test_a_value_that_would_fill_the_memory_is_cut() -> None:
    bomb: object = "x"
    for _ in range(100):
        bomb = [bomb] * 10  # 10^100 parts
    assert excerpt(bomb).startswith("[[[[[")
    loop: list[object] = []
    loop.append(loop)
    assert excerpt(loop) == "[[[[[...]]]]]"
    assert excerpt({"a": bomb}).endswith("...")
    assert excerpt("x" * 10**7) == "'" + "x" * (SHOWN - 4) + "..."
    assert excerpt(1 << 10**7) == "an integer of 10,000,001 bits"  # Python refuses to print it


def test_a_text_is_put_on_one_line_without_what_cannot_be_printed() -> None:
    assert shorten("a\nb\tc \x1b[31m\ud800") == "a b c ?[31m?"
    assert shorten("word " * 100, 20) == "word word word wo..."
