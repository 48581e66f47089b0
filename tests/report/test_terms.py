"""Words of a page: each is explained where it first stands, once, and where a reader sees it."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from dsui.report.columns import SCORES
from dsui.report.metric_formats import METRICS
from dsui.report.page import page
from dsui.report.section import FoldedTable, Section
from dsui.report.terms import TERMS, Term, explained
from dsui.score_table import NAMES


def words(found: dict[str, list[Term]]) -> dict[str, list[str]]:
    return {key: [term.word for term in terms] for key, terms in found.items()}


def test_a_word_is_explained_in_the_first_section_that_uses_it_and_only_there() -> None:
    inner = Section("inner", "Inner", ["The AURC of Max.P. again."])
    first = Section("first", "First", ["Its AURC is small."], sections=[inner])
    assert words(explained([first, Section("last", "Last", ["AURC, Max.P. and coverage"])])) == {
        "first": ["AURC"],
        "inner": ["Max.P."],
        "last": ["coverage"],
    }


def test_words_in_tables_folded_tables_and_meanings_count_and_parts_of_words_do_not() -> None:
    table = Section("table", "Table", tables=["<table><td>FPR95&nbsp;%</td></table>"])
    folded = Section("folded", "Folded", folded_tables=[FoldedTable("gamma", "<td>ECE</td>")])
    parts = Section("parts", "Parts", ["a rhombus, class=ece, misclassifications"])
    found = words(explained([table, folded, parts]))
    assert found["table"] == ["in-domain", "foreign", "FPR95"], "its meaning says foreign and in-domain"
    assert {"gamma", "ECE", "confidence", "regularizer"} <= set(found["folded"])
    assert found["parts"] == []


def test_words_that_a_page_explains_itself_are_left_to_it() -> None:
    section = Section("s", "S", ["AUROC and AUPR"])
    assert "AUROC" not in words(explained([section], ["AUROC"]))["s"]


def test_the_page_writes_the_meaning_where_everybody_can_read_it() -> None:
    html = page("T", "L", [Section("a", "A", ["Its AURC."]), Section("b", "B", ["Its AURC."])])
    (listed,) = re.findall(r'<dl class="terms".*?</dl>', html, re.DOTALL)
    assert re.search(r"<dt>AURC</dt> <dd>mean share of errors among the kept", listed)
    assert html.index("Its AURC.") < html.index(listed) < html.index('id="b"')


@pytest.mark.parametrize("name", [metric.title for metric in METRICS.values() if metric.title != "accuracy"])
def test_every_metric_is_explained(name: str) -> None:
    assert words(explained([Section("s", "S", [f"It has {name} here."])]))["s"] != []


@pytest.mark.parametrize("score", NAMES)
def test_every_score_is_explained(score: str) -> None:
    assert words(explained([Section("s", "S", [SCORES.get(score, score)])]))["s"] != []


def test_no_word_is_listed_twice_and_every_meaning_is_short_and_plain() -> None:
    assert max(Counter(term.word for term in TERMS).values()) == 1
    assert max(len(term.meaning) for term in TERMS) <= 130
    assert not any(term.meaning.endswith(".") for term in TERMS)
