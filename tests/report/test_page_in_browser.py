"""The page as a browser shows it: on a wide screen and a phone, light and dark, with class names in many scripts."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from dsui.data.folder import folder_set
from dsui.data.registry import load
from dsui.report.assembly import sections
from dsui.report.figures import embedding
from dsui.report.page import page, write_page
from dsui.runs.config import RunConfig
from dsui.runs.images import training_images
from dsui.runs.model import run_facts
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.training.distributed import World
from dsui.training.loop import fit
from dsui.training.reporter import SilentReporter
from tests.support.chromium import CONTRASTS, Browser, find_chromium, open_browser

CPU = torch.device("cpu")
CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; apt-get install chromium")
WIDE, PHONE = 1280, 400
CLASSES = (
    "猫",
    "非常に長い名前の種類の鳥と魚と虫",
    "قطة",
    "बिल्ली",
    "👩\u200d🚀 pilot",
    "кошка",
    "한국어 고양이",
    "แมว",
    "_plain $x$ <b>",
    "a very long class name with many words",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with open_browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page about a run of two epochs on digits whose classes have other names."""
    folder = tmp_path_factory.mktemp("scripts")
    for split, count in (("train", 200), ("test", 100)):
        images = load("digits", split)
        for number, (pixels, label) in enumerate(zip(images.read(torch.arange(count)), images.labels, strict=False)):
            place = folder / "images" / split / CLASSES[int(label)]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[0].numpy()).save(place / f"{number}.png")
    whole = folder_set(folder / "images", "train", size=8, channels=1)
    overrides, options = method_options("dsui", {"epochs": 2})
    recipe = load_recipe("demo", whole.name, overrides)
    config = RunConfig(
        data=whole.name,
        backbone="small",
        method="dsui",
        seed=0,
        size=8,
        channels=1,
        recipe=recipe,
        options=options,
    )
    fit(config, training_images(config, whole), folder / "run", CPU, World(), SilentReporter())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, "POINTS", 100)
        built = sections([run_facts(folder / "run")], CPU, foreign=("photos",))
    write_page(folder / "report.html", page("A page", "A lead.", built))
    return folder / "report.html"


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_nothing_fails_and_nothing_is_wider_than_the_screen(browser: Browser, report: Path, width: int) -> None:
    browser.show(report, width)
    assert browser.errors == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    outside = browser.evaluate(
        """[...document.body.querySelectorAll("*")]
            .filter(e => !e.closest(".scroll") && !e.closest("svg *"))
            .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
            .map(e => e.outerHTML.slice(0, 90))"""
    )
    assert outside == []


def test_tables_wider_than_a_phone_scroll_in_their_own_box_and_keep_their_first_column(
    browser: Browser, report: Path
) -> None:
    browser.show(report, PHONE)
    wide, moved = browser.evaluate(
        """(() => {
            const box = [...document.querySelectorAll(".scroll")].find(e => e.scrollWidth > e.clientWidth + 50);
            const label = box.querySelector("tbody th"), before = label.getBoundingClientRect().left;
            box.scrollLeft = 50;
            return [box.scrollLeft, label.getBoundingClientRect().left - before];
        })()"""
    )
    assert wide == 50
    assert moved == 0


@pytest.mark.parametrize(("dark", "media"), [(False, "screen"), (True, "screen"), (True, "print")])
def test_all_text_has_enough_contrast(browser: Browser, report: Path, dark: bool, media: str) -> None:
    browser.show(report, WIDE, dark=dark, media=media)
    contrasts = browser.evaluate(CONTRASTS)
    assert len(contrasts) > 300
    assert [text for contrast, text in contrasts if contrast < 4.5] == [], "WCAG asks for 4.5 to 1"


def test_a_dark_screen_has_a_dark_page_and_paper_is_white_all_the_same(browser: Browser, report: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.show(report, WIDE, dark=True)
    assert browser.evaluate(paper) == "rgb(22, 22, 26)"
    browser.show(report, WIDE, dark=True, media="print")
    assert browser.evaluate(paper) == "rgb(255, 255, 255)"
    assert browser.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.evaluate("document.querySelector('.terms').getBoundingClientRect().height") > 20


def test_every_figure_can_be_seen_and_has_one_sentence_that_says_how_to_read_it(browser: Browser, report: Path) -> None:
    browser.show(report, PHONE)
    figures = browser.evaluate(
        """[...document.querySelectorAll("figure")].map(e => ({
            name: e.id, width: e.querySelector("svg").getBoundingClientRect().width,
            readings: [...e.querySelectorAll(".reading")].map(r => r.innerText)}))"""
    )
    assert len(figures) > 15
    for figure in figures:
        (reading,) = figure["readings"]
        assert reading.endswith(".")
        assert ". " not in reading, figure["name"]
        assert len(reading) > 60
        assert figure["width"] > 0.85 * PHONE


def test_five_figures_stand_below_each_other_on_a_phone(browser: Browser, report: Path) -> None:
    """The page of a run that was attacked has five in a section; here others take their class."""
    browser.show(report, PHONE)
    widths = browser.evaluate(
        """[...document.querySelectorAll(".figures")].flatMap(e => {
            e.className = "figures three-and-pair";
            return [...e.children].map(figure => figure.getBoundingClientRect().width)})"""
    )
    assert min(widths) > 0.85 * PHONE


def test_the_verdict_is_read_on_a_phone_without_scrolling_sideways(browser: Browser, report: Path) -> None:
    browser.show(report, PHONE)
    hidden = browser.evaluate(
        """[...document.querySelectorAll("#verdict ~ .scroll")].map(e => e.scrollWidth - e.clientWidth)"""
    )
    assert hidden == [0]


def test_pictures_fill_their_rows_on_every_screen(browser: Browser, report: Path) -> None:
    for width, columns in ((WIDE, 8), (800, 4), (PHONE, 2)):
        browser.show(report, width)
        boxes = browser.evaluate(
            """[...[...document.querySelectorAll(".images")].find(e => e.children.length === 8).children]
                .map(e => [e.getBoundingClientRect().left, e.getBoundingClientRect().top])"""
        )
        rows: dict[float, int] = {}
        for _, top in boxes:
            rows[top] = rows.get(top, 0) + 1
        assert set(rows.values()) == {columns}


TEXTS = """[...document.querySelectorAll("figure")].map(figure => {
    const box = figure.querySelector("svg").getBoundingClientRect();
    const texts = [...figure.querySelectorAll("text")].map(e => {
        const own = e.getBoundingClientRect();
        return [e.textContent, own.left - box.left, own.top - box.top, own.right - box.left, own.bottom - box.top];
    });
    return {name: figure.id, width: box.width, height: box.height, texts};
})"""
"""Of every figure its texts, each with its left, top, right and bottom."""


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_no_text_leaves_its_figure_in_any_script(browser: Browser, report: Path, width: int) -> None:
    browser.show(report, width)
    for figure in browser.evaluate(TEXTS):
        for text, left, top, right, bottom in figure["texts"]:
            within = left > -2 and top > -2 and right < figure["width"] + 2 and bottom < figure["height"] + 2
            assert within, f"{text} leaves {figure['name']}"


def test_names_of_classes_in_t_sne_do_not_overlap_and_none_is_lost(browser: Browser, report: Path) -> None:
    browser.show(report, WIDE)
    drawn = [figure for figure in browser.evaluate(TEXTS) if "tsne" in figure["name"]]
    assert len(drawn) == 2
    for figure in drawn:
        assert len(figure["texts"]) == len(CLASSES)
        for one, other in combinations(figure["texts"], 2):
            assert not overlap(one, other), f"{one[0]} lies on {other[0]}"


def overlap(one: list[Any], other: list[Any]) -> bool:
    """By more than the air around letters."""
    across, down = (min(one[end], other[end]) - max(one[start], other[start]) for start, end in ((1, 3), (2, 4)))
    return bool(across > 1 and down > 3)


MISSING = """letters => {
    const canvas = document.createElement("canvas"), context = canvas.getContext("2d", {willReadFrequently: true});
    const family = getComputedStyle(document.querySelector("figure text")).fontFamily;
    const picture = letter => {
        context.clearRect(0, 0, canvas.width, canvas.height);
        context.font = `40px ${family}`;
        context.fillText(letter, 20, 80);
        return context.getImageData(0, 0, canvas.width, canvas.height).data.join();
    };
    const box = picture("\\u{10FFFC}");
    return letters.filter(letter => picture(letter) === box);
}"""
"""The letters that look like one that no font has."""


def has_font(letter: str) -> bool:
    """Whether a font of this machine has it; without fc-list only Latin letters are looked at."""
    if (lister := shutil.which("fc-list")) is None:
        return letter.isascii()
    return bool(subprocess.run([lister, f":charset={ord(letter):x}"], capture_output=True, check=True).stdout)


def test_letters_of_every_script_that_this_machine_has_are_shown_and_not_boxes(browser: Browser, report: Path) -> None:
    letters = [letter for letter in dict.fromkeys("".join(CLASSES)) if letter.isalpha() and has_font(letter)]
    assert len(letters) > 15
    browser.show(report, WIDE)
    shown = "".join(text for figure in browser.evaluate(TEXTS) for text, *_ in figure["texts"])
    assert set("猫قطةबिल्ली") <= set(shown), "text stays text"
    assert browser.evaluate(f"({MISSING})({json.dumps(letters)})") == []
    unknown = "\U0010fffd"  # for private use
    assert browser.evaluate(f"({MISSING})({json.dumps([unknown])})") == [unknown], "a letter without a font is noticed"
