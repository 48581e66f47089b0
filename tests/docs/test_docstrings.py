"""docs/conf.py converts docstrings, which are plain text, such that docutils shows them unchanged."""

from __future__ import annotations

import runpy

import pytest

from tests.support.fences import ROOT

pytest.importorskip("sphinx")
from docutils import nodes
from docutils.core import publish_doctree

restructured = runpy.run_path(str(ROOT / "docs" / "conf.py"))["restructured"]


def shown(docstring: str) -> nodes.document:
    """The document that docutils shows; it stops at the first warning."""
    return publish_doctree("\n".join(restructured(docstring.splitlines())), settings_overrides={"halt_level": 2})


@pytest.mark.parametrize(
    "text",
    [
        "a_ |h| *b* w* = eta*, x**2, [B]_ and <c>: \\d",
        "sum_{i != t} ln(w_i GMM_i(z)) - 1:2, http:",
        'the "reg" of a*b* and __init__',
    ],
)
def test_signs_that_mean_something_to_sphinx_stay_what_they_are(text: str) -> None:
    assert shown(text).astext() == text


def test_what_is_indented_is_shown_as_it_is() -> None:
    document = shown("First.\n\n    u = a_b  * |c|\n\n      more\nAfter `that`.")
    (block,) = document.findall(nodes.literal_block)
    assert block.astext() == "u = a_b  * |c|\n\n  more"
    (code,) = document.findall(nodes.literal)
    assert code.astext() == "that"


def test_items_may_go_on_in_the_next_line() -> None:
    document = shown("Two:\n\n* one_\n  and more\n* two")
    assert [item.astext() for item in document.findall(nodes.list_item)] == ["one_\nand more", "two"]
    assert not list(document.findall(nodes.literal_block))


def test_names_of_the_package_become_references_that_the_build_checks() -> None:
    assert restructured(["see `dsui.head` and `head`."]) == ["see :py:obj:`dsui.head` and ``head``."]
