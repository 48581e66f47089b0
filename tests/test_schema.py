"""A schema accepts what it describes, and names the place, the value and what was expected otherwise."""

from __future__ import annotations

import math
from typing import Any, Literal, get_type_hints

import pytest

from dsui.methods.registry import names, option_kinds
from dsui.recipe import Recipe
from dsui.schema import (
    NOTHING,
    TRUTH,
    Kind,
    SchemaError,
    check,
    choice,
    either,
    fits,
    instance,
    listed,
    mapping,
    number,
    of_type,
    record,
    text,
    whole,
)

ROW = record(
    {"epoch": whole(0), "terms": mapping(number(), most=2)},
    {"names": listed(text(5), most=2, least=1), "note": either(text(5), NOTHING)},
)


def test_what_a_schema_describes_passes_and_keys_that_it_does_not_name_are_ignored() -> None:
    check({"epoch": 3, "terms": {"loss": 1, "other": 0.5}, "names": ["a"], "note": None, "later": object()}, ROW)
    assert fits({"epoch": 0, "terms": {}}, ROW)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "it is []; it must be a mapping"),
        ({"terms": {}}, "epoch is absent; it must be a whole number from 0 to 1,000,000,000"),
        ({"epoch": True, "terms": {}}, "epoch is True; it must be a whole number"),
        ({"epoch": 1.0, "terms": {}}, "epoch is 1.0; it must be a whole number"),
        ({"epoch": 10**20, "terms": {}}, "epoch is 100000000000000000000; it must be"),
        ({"epoch": 0, "terms": {"loss": "x"}}, "terms.loss is 'x'; it must be a number"),
        ({"epoch": 0, "terms": {"loss": math.nan}}, "terms.loss is nan; it must be a number"),
        ({"epoch": 0, "terms": {"loss": 10**400}}, "terms.loss is an integer of 1,329 bits; it must be a number"),
        ({"epoch": 0, "terms": {1: 0}}, "terms is {1: 0}; it must be a mapping of at most 2 keys"),
        ({"epoch": 0, "terms": dict.fromkeys("abc", 0)}, "terms is {'a': 0, 'b': 0, 'c': 0}; it must be"),
        ({"epoch": 0, "terms": {}, "names": []}, "names is []; it must be a list of 1 to 2 values"),
        ({"epoch": 0, "terms": {}, "names": ["a", 3]}, "names[1] is 3; it must be text of at most 5 characters"),
        ({"epoch": 0, "terms": {}, "names": ["abcdef"]}, "names[0] is 'abcdef'; it must be text of at most 5"),
        ({"epoch": 0, "terms": {}, "note": 3}, "note is 3; it must be text of at most 5 characters or null"),
    ],
)
def test_the_first_wrong_value_is_named(value: object, sentence: str) -> None:
    assert not fits(value, ROW)
    with pytest.raises(SchemaError) as raised:
        check(value, ROW)
    assert str(raised.value).startswith(sentence)


def test_a_place_is_named_below_the_place_of_the_whole_and_shortened() -> None:
    with pytest.raises(SchemaError, match=r"^options\.a is None"):
        check({"a": None}, mapping(number()), "options")
    with pytest.raises(SchemaError) as raised:
        check({"k" * 10**6: None}, mapping(number()))
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("hint", "right", "wrong"),
    [
        (int, [0, -5], [True, 1.5, "1", 10**10]),
        (float, [1, 0.5, math.inf], [True, "1", None, 10**400]),
        (bool, [True], [1, "true"]),
        (str, ["a"], [1, None, "x" * 2000]),
        (float | None, [None, 1.0], ["x", False]),
        (Literal["a", 1], ["a", 1], ["b", True, 1.0, [1]]),
        (tuple[float, ...], [[0.5], (1, 2), []], [0.5, ["x"], [0.0] * 2000]),
    ],
)
def test_a_type_of_python_is_a_kind(hint: Any, right: list[object], wrong: list[object]) -> None:
    assert all(fits(value, of_type(hint)) for value in right)
    assert not any(fits(value, of_type(hint)) for value in wrong)


def test_every_setting_of_a_recipe_and_every_option_of_a_method_has_a_kind() -> None:
    for name in names():
        for hint in option_kinds(name).values():
            assert of_type(hint).expected
    for key, hint in get_type_hints(Recipe).items():
        assert key == "method_options" or of_type(hint).expected


def test_other_kinds() -> None:
    assert fits(math.nan, number(finite=False))
    assert not fits(2, number(0, 1))
    assert fits(True, TRUTH)
    assert choice("a", None).expected == "one of a, null"
    assert fits({}, instance(dict, "a mapping"))
    assert Kind("anything", lambda _: True).parts(3) == ()
