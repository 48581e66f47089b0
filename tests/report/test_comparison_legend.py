"""Short labels and what they stand for."""

from __future__ import annotations

import pytest

from dsui.report.comparison_legend import Legend, ShortLabels
from dsui.report.comparison_lines import LineKey


def own(method: str, recipe: str, objective: str | None = None) -> LineKey:
    return LineKey(method, (objective, recipe), quoted=False)


def labelled(*keys: LineKey) -> tuple[list[str], Legend]:
    labels = ShortLabels()
    found = labels(keys)
    return [found[key] for key in keys], labels.legend


def test_methods_with_the_same_settings_have_no_letters() -> None:
    assert labelled(own("dsui", "demo, epochs=6"), own("msp", "demo, epochs=6")) == (
        ["dsui", "msp"],
        Legend("demo, epochs=6", ()),
    )


def test_a_letter_stands_for_the_same_settings_in_every_line() -> None:
    lines = own("dsui", "demo, epochs=6"), own("dsui", "demo, epochs=6, rho=10"), own("msp", "demo, epochs=6")
    assert labelled(*lines) == (
        ["dsui A", "dsui B", "msp A"],
        Legend("demo, epochs=6", (("A", "nothing else"), ("B", "rho=10"))),
    )


def test_settings_that_differ_between_methods_are_told_though_each_has_one_line() -> None:
    assert labelled(own("dsui", "modern, rho=10"), own("msp", "modern")) == (
        ["dsui A", "msp B"],
        Legend("modern", (("A", "rho=10"), ("B", "nothing else"))),
    )


def test_an_objective_is_told_where_the_lines_of_a_method_differ_in_it() -> None:
    lines = own("dsui", "demo", "bounded"), own("dsui", "demo", "posterior"), own("msp", "demo", "cross-entropy")
    assert labelled(*lines) == (
        ["dsui A", "dsui B", "msp C"],
        Legend("demo", (("A", "bounded"), ("B", "posterior"), ("C", "nothing else"))),
    )


def test_a_value_with_commas_is_one_setting() -> None:
    lines = own("msp", "mine 3f2a91, mean=[0.1, 0.2], epochs=3"), own("msp", "mine 3f2a91, mean=[0.1, 0.3], epochs=3")
    assert labelled(*lines)[1] == Legend("mine 3f2a91, epochs=3", (("A", "mean=[0.1, 0.2]"), ("B", "mean=[0.1, 0.3]")))


def test_published_lines_have_letters_for_their_own_variants() -> None:
    plain = LineKey("msp", (None, None, None), quoted=True)
    parts = [LineKey("dsui", ("K 8", push, "reg"), quoted=True) for push in ("push", "no push")]
    assert labelled(own("dsui", "paper"), plain, *parts) == (
        ["dsui", "msp", "dsui A", "dsui B"],
        Legend("paper", (("A", "push"), ("B", "no push"))),
    )


def test_letters_do_not_end_with_z() -> None:
    labels, legend = labelled(*(own("msp", f"demo, epochs={count}") for count in range(30)))
    assert labels[25:28] == ["msp Z", "msp AA", "msp AB"]
    assert len({letter for letter, _ in legend.entries}) == 30


@pytest.mark.parametrize("recipe", ["", "demo"])
def test_a_recipe_may_be_unknown(recipe: str) -> None:
    assert labelled(own("msp", recipe)) == (["msp"], Legend(recipe, ()))


def test_long_labels_name_the_same_lines() -> None:
    labels = ShortLabels()
    labels([own("dsui", "demo"), own("dsui", "demo, rho=10")])
    assert labels.long == ("dsui (demo)", "dsui (demo, rho=10)")
