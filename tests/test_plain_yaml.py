"""YAML that is read as PyYAML reads it, and YAML that is refused in one clause before anything is built."""

from __future__ import annotations

import time
from importlib import resources

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dsui.plain_yaml import DEEPEST, MOST_CHARACTERS, MOST_PARTS, YamlError, load_yaml

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
"""A value of 10^9 parts in 400 bytes."""
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(PLAIN)
def test_a_value_is_read_as_pyyaml_reads_it(value: object) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    assert load_yaml(text) == yaml.safe_load(text)  # PyYAML loses the line break U+0085


@pytest.mark.parametrize("folder", ["runs/recipes", "experiments/grids"])
def test_shipped_files_are_read_as_pyyaml_reads_them(folder: str) -> None:
    for file in (resources.files("dsui") / folder).iterdir():
        text = file.read_text(encoding="utf-8")
        assert load_yaml(text) == yaml.safe_load(text)


def test_small_values_may_be_repeated_by_aliases() -> None:
    assert load_yaml("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}") == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}


def test_a_date_is_text() -> None:
    assert load_yaml("2021-13-01") == "2021-13-01"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, f"it has more than {MOST_PARTS:,} values, those that aliases repeat included in line 5"),
        (BOMB.replace("x,", "{k: 1},").replace("[*", "{<<: [*").replace("*]", "*]}"), "more than|expected"),
        ("&a [*a]", "the alias 'a' stands inside what it repeats in line 1"),
        ("[" * 3000, f"it nests deeper than {DEEPEST} levels in line 1"),
        ("- " * 3000, f"it nests deeper than {DEEPEST} levels in line 1"),
        ("x" * (MOST_CHARACTERS + 1), "it has 262,145 characters, more than 262,144"),
        ("\n!!bool abc", "'abc' is not of the type bool in line 2"),
        ("!!int ''", "'' is not of the type int in line 1"),
        ("!!int 0b2", "'0b2' is not of the type int in line 1"),
        ("!!float x", "'x' is not of the type float in line 1"),
        ("!!timestamp abc", "the tag 'tag:yaml.org,2002:timestamp' is not used here in line 1"),
        ("!!binary x", "the tag 'tag:yaml.org,2002:binary' is not used here in line 1"),
        ("!!python/name:os.system x", "is not used here in line 1"),
        ("9" * 5000, "a number has 5,000 characters in line 1"),
        ("1:" * 4000 + "1", "a number has 8,001 characters in line 1"),
        (r'"\ud800"', "a text holds half a character in line 1"),
        ("? [a]\n: 1", "found unhashable key in line 1"),
        ("a: [1", r"expected ',' or '\]', but got '<stream end>' in line 1"),
        ("a\x07b", "special characters are not allowed in line 1"),
    ],
)
def test_the_rest_is_refused_at_once(text: str, why: str) -> None:
    began = time.monotonic()
    with pytest.raises(YamlError, match=why) as raised:
        load_yaml(text)
    assert len(str(raised.value)) < 200
    assert time.monotonic() - began < 5  # 0.2 s when written; what is counted first takes no time


def test_the_largest_text_is_read_in_seconds() -> None:
    began = time.monotonic()
    assert load_yaml(f"[{'1, ' * (MOST_PARTS - 2)}]") == [1] * (MOST_PARTS - 2)
    assert time.monotonic() - began < 10  # 1 s when written
