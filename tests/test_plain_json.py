"""JSON that Python reads, and clauses where it cannot."""

from __future__ import annotations

import pytest

from dsui.plain_json import load_json


def test_a_value_is_read_from_text_and_bytes() -> None:
    assert load_json('{"a": [1, null]}') == load_json(b'{"a": [1, null]}') == {"a": [1, None]}
    assert load_json(r'"😀"') == "\U0001f600"
    assert load_json(r'"caf\udce9"') == "caf\udce9"  # a file name that is no text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "its brackets nest too deep"),
        ("9" * 5000, "it is not whole JSON"),
        ('{"a"', "it is not whole JSON"),
        (b"\xff", "it is not whole JSON"),
        (r'["\ud800"]', "a text in it holds half a character"),
    ],
)
def test_the_rest_is_a_value_error_of_one_clause(text: str | bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        load_json(text)
