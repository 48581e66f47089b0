"""Names of classes in figures: short, printable, in any script, and in PNG files too."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsui.report.figures import system_fonts
from dsui.report.figures.canvas import Drawing, new_panel, styled, to_png, to_svg
from dsui.report.figures.names import LONGEST_NAME, columns, shorten
from dsui.report.page import write_figures
from dsui.report.section import Section


@given(st.text(max_size=80))
def test_a_name_is_never_too_long_and_holds_nothing_that_turns_the_text_around(name: str) -> None:
    shown = shorten(name)
    assert columns(shown.rstrip(" ")) <= LONGEST_NAME
    assert not any(unicodedata.bidirectional(letter) in {"RLO", "LRO", "RLE", "LRE", "RLI"} for letter in shown)
    assert not shown.startswith("_")


def test_a_short_name_stays_as_it_is_and_a_long_one_ends_with_dots() -> None:
    assert shorten("tabby cat") == "tabby cat"
    assert shorten("x" * 30) == "x" * 23 + "…"
    assert shorten("a\x07b") == "a\ufffdb"


def test_wide_letters_count_twice_and_get_the_room_that_the_layout_does_not_know_of() -> None:
    assert shorten("猫" * 30).rstrip() == "猫" * 11 + "…"
    assert shorten("猫").startswith("猫 ")
    assert not shorten("кошка").endswith(" ")


def test_signs_that_join_letters_are_kept_and_a_name_is_not_cut_within_a_joined_one() -> None:
    astronaut = "👩\u200d🚀"
    assert shorten(astronaut).rstrip() == astronaut
    assert not shorten("a" * 20 + astronaut).rstrip("… ").endswith("\u200d")
    assert columns("e\u0301") == 1, "the accent stands on its letter"


@styled
def titled(title: str) -> Drawing:
    figure, axes = new_panel()
    axes.set_title(title)
    return Drawing("titled", figure, "A caption.", "", "A sentence.")


def test_an_svg_keeps_every_letter_as_text() -> None:
    assert "猫 بिल्ली 👩" in to_svg(titled("猫 بिल्ली 👩"))


def test_a_png_shows_a_question_mark_for_a_letter_without_a_font_and_the_figure_is_not_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system_fonts, "_font_with", lambda _letter: None)
    drawing = titled("猫 cat")
    assert to_png(drawing) == to_png(titled("? cat")), "no box"
    assert drawing.figure.axes[0].get_title() == "猫 cat"


def test_a_png_uses_a_font_of_the_machine_and_never_one_of_boxes() -> None:
    found = system_fonts._font_with("猫")
    if found is None:
        pytest.skip("no font of this machine has Chinese letters")
    assert not found.startswith(system_fonts.LAST_RESORT)
    assert to_png(titled("猫")) not in {to_png(titled("?")), to_png(titled("犬"))}


def test_plain_letters_need_no_other_font(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(letter: str) -> str | None:
        raise AssertionError(f"looked for a font with {letter}")

    monkeypatch.setattr(system_fonts, "_font_with", refuse)
    to_png(titled("AUROC (%) → ε 0.1, кошка, \N{MINUS SIGN} …"))


def test_who_writes_figures_is_told_which_letters_a_png_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_fonts, "_font_with", lambda _letter: None)
    told: list[str] = []
    write_figures(tmp_path, [Section("s", "S", drawings=[titled("猫 cat")])], told.append)
    assert told == [
        "No font of this machine has 猫; PNG files show ? instead. The page and the SVG files keep every letter."
    ]
    write_figures(tmp_path, [Section("s", "S", drawings=[titled("cat")])], told.append)
    assert len(told) == 1
