"""The page about an msp and a dsui run of three epochs on digits: its structure, and whether it tells the truth."""

from __future__ import annotations

import base64
import io
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.metrics import confusion_matrix

from dsui.data.dataset import ImageSet
from dsui.data.folder import folder_set
from dsui.data.registry import load
from dsui.errors import DsuiError
from dsui.evaluation.cache import OutputCache
from dsui.evaluation.metrics import auroc
from dsui.evaluation.results import append
from dsui.evaluation.sources import ImageSources
from dsui.evaluation.tasks import Evaluation
from dsui.evaluation.verdict import unbroken
from dsui.report import assembly
from dsui.report.assembly import sections
from dsui.report.confusion import NEVER
from dsui.report.figures import embedding
from dsui.report.html_table import to_html
from dsui.report.overview import comparison_section, results_section
from dsui.report.page import page, valid, write_figures, write_page
from dsui.report.run_data import RunData, collect_run_data
from dsui.report.run_section import _classes, run_section
from dsui.report.section import Section
from dsui.report.tables import Column, Entry, Line, Table
from dsui.report.thumbnails import apart, highest, png
from dsui.report.verdict_section import verdict_section
from dsui.runs.config import RunConfig
from dsui.runs.folder import WEIGHTS
from dsui.runs.images import training_images
from dsui.runs.model import RunFacts, run_facts
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.runs.weights import load_weights, save_weights
from dsui.training.distributed import World
from dsui.training.loop import fit
from dsui.training.reporter import SilentReporter
from tests.support import digit_runs
from tests.support.result_row import ROW

CPU = torch.device("cpu")
POINTS = 40  # of the embedding: a picture of 600 takes ten seconds


def train(method: str, out: Path, known: str | None = None, whole: ImageSet | None = None) -> Path:
    whole = whole or load("digits", "train")
    overrides, options = method_options(method, {"epochs": 3})
    recipe = load_recipe("demo", "digits", overrides)
    config = RunConfig(
        data=whole.name,
        backbone="small",
        method=method,
        seed=0,
        size=8,
        channels=1,
        recipe=recipe,
        options=options,
        known=known,
    )
    fit(config, training_images(config, whole), out, CPU, World(), SilentReporter())
    return out


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No test may change it."""
    folder = tmp_path_factory.mktemp("report-runs")
    for method in ("msp", "dsui"):
        train(method, folder / method)
    return folder


@pytest.fixture(scope="session")
def run_data(shelf: Path) -> dict[str, RunData]:
    return {method: collect(run_facts(shelf / method)) for method in ("msp", "dsui")}


def collect(facts: RunFacts, foreign: tuple[str, ...] = ("photos",), name: str | None = None) -> RunData:
    sources = ImageSources(facts.config, facts.classes)
    with OutputCache(facts, CPU) as cache:
        return collect_run_data(name or facts.name, f"run-1-{facts.name}", Evaluation(cache, sources), foreign, POINTS)


@pytest.fixture(scope="session")
def built(shelf: Path) -> list[Section]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, "POINTS", POINTS)
        return sections([run_facts(shelf / method) for method in ("msp", "dsui")], CPU, foreign=("photos",))


@pytest.fixture
def no_figures_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that look at nothing but the rest."""
    monkeypatch.setattr(assembly, "run_section", lambda each, _done: Section(each.key, f"Run {each.name}"))


@pytest.fixture(scope="session")
def html(built: list[Section]) -> str:
    return page("Two <methods> & digits", "A lead.", built)


class Element:
    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag, self.attributes, self.text = tag, attributes, ""


class Outline(HTMLParser):
    """All elements in order, with the text inside them; a tag that is not closed as it was opened is an error."""

    VOID = frozenset({"meta", "img", "br", "link", "input", "hr", "wbr"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.open: list[Element] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        if tag not in self.VOID:
            self.open.append(self.elements[-1])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def of(self, *tags: str) -> list[Element]:
        return [element for element in self.elements if element.tag in tags]


@pytest.fixture(scope="session")
def outline(html: str) -> Outline:
    return Outline(html)


# Structure


def test_one_title_and_no_heading_level_is_skipped(outline: Outline) -> None:
    levels = [int(element.tag[1]) for element in outline.of("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(element.text.strip() for element in outline.of("h1", "h2", "h3", "h4"))


def test_every_figure_and_image_has_a_name_that_says_something(outline: Outline) -> None:
    drawings, images = outline.of("svg"), outline.of("img")
    assert len(drawings) > 30
    assert len(images) > 30
    assert all(svg.attributes["role"] == "img" and len(svg.attributes["aria-label"]) > 40 for svg in drawings)
    assert all(re.search(r"predicted \d, 0\.\d+", image.attributes["alt"]) for image in images)
    assert all(figure.text.strip() for figure in outline.of("figcaption"))


def test_nothing_is_fetched_and_nothing_runs(outline: Outline) -> None:
    assert not outline.of("script", "link", "iframe", "object", "embed")
    for element in outline.elements:
        for name, value in element.attributes.items():
            assert not name.startswith("on")
            if element.tag != "a":
                assert "http" not in value
            if name in {"src", "href"}:
                assert value.startswith(("#", "data:image/png;base64,"))
    style = outline.of("style")[0].text
    assert "@import" not in style
    assert "url(" not in style
    assert "http" not in style


def test_identifiers_are_unique_and_every_reference_finds_its_target(outline: Outline) -> None:
    names = [element.attributes["id"] for element in outline.elements if "id" in element.attributes]
    assert len(names) == len(set(names))
    for element in outline.elements:
        targets = [element.attributes.get("aria-labelledby", "")]
        targets += re.findall(r"url\(#([^)]+)\)", " ".join(element.attributes.values()))
        targets += [value[1:] for name, value in element.attributes.items() if name == "href" and value[:1] == "#"]
        assert {target for target in targets if target} <= set(names)


def test_tables_have_captions_and_headers_with_a_scope_and_scroll_in_a_box_of_their_own(outline: Outline) -> None:
    tables = outline.of("table")
    assert len(outline.of("caption")) == len(tables) >= 5
    assert {element.attributes.get("scope") for element in outline.of("th")} == {"col", "colgroup", "row"}
    boxes = [element for element in outline.of("div") if element.attributes.get("class") == "scroll"]
    assert len(boxes) == len(tables)
    assert all(box.attributes["tabindex"] == "0" and box.attributes["aria-label"] for box in boxes)


def test_a_table_wider_than_its_box_is_shaded_at_the_edge_on_screens_and_not_on_paper(outline: Outline) -> None:
    style = outline.of("style")[0].text
    screen, printed = style.split("@media print")
    (background,) = re.findall(r"\.scroll \{[^}]*?background: ([^;]+);", screen, re.DOTALL)
    cover, shade = background.split(" local,")
    assert "var(--paper)" in cover
    assert "var(--shade)" in shade
    assert shade.endswith("scroll"), "it stays at the edge, while the cover moves with the end of the table"
    assert re.search(r"\.scroll \{[^}]*background: none", printed)


def test_the_page_has_landmarks_a_skip_link_and_a_language(outline: Outline) -> None:
    for tag in ("header", "nav", "main", "footer"):
        assert len(outline.of(tag)) == 1, tag
    assert outline.of("html")[0].attributes["lang"] == "en"
    assert outline.of("a")[0].attributes == {"class": "skip", "href": f"#{outline.of('main')[0].attributes['id']}"}
    assert "width=device-width" in outline.of("meta")[1].attributes["content"]


def test_every_colour_of_a_figure_has_a_light_a_dark_and_a_printed_value(html: str, outline: Outline) -> None:
    style = outline.of("style")[0].text
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    dark, printed = dark.split("@media print")
    used = set(re.findall(r"var\((--[\w-]+)\)", html)) - {"--figure-font"}
    assert {"--ink", "--blue", "--faint"} < used
    for part in (light, dark, printed):
        assert used <= set(re.findall(r"(--[\w-]+):", part))


def test_words_of_the_user_are_escaped(outline: Outline, html: str) -> None:
    assert outline.of("h1")[0].text == "Two <methods> & digits"
    assert "<methods>" not in html


def test_two_small_runs_make_a_small_page(html: str) -> None:
    assert len(html.encode()) < 1_000_000


# What it says


def cells(outline: Outline, caption: str) -> list[str]:
    """The body of the table with this caption, cell by cell."""
    found: list[str] = []
    inside = False
    for element in outline.elements:
        if element.tag == "caption":
            inside = element.text == caption
        if inside and element.tag == "td" and element.text.strip():
            found.append(element.text.strip())
    return found


def test_the_headline_is_what_the_scores_give(outline: Outline, run_data: dict[str, RunData]) -> None:
    captions = [caption.text for caption in outline.of("caption")]

    def figures(beginning: str) -> list[str]:
        return cells(outline, next(text for text in captions if text.startswith(beginning)))

    for method in ("msp", "dsui"):
        own = run_data[method].own
        assert f"{100 * own.correct.double().mean():.2f}" in figures("Accuracy and calibration")
        assert f"{100 * auroc(own.scores['uncertainty'], ~own.correct):.2f}" in figures("Finding errors")
    foreign = figures("Finding foreign images: photos")
    assert f"{100 * foreign_auroc(run_data['dsui'], 'uncertainty'):.2f}" in foreign
    assert len(foreign) == 2 * 2, "AUROC and FPR95 of two methods"


def foreign_auroc(data: RunData, score: str) -> float:
    joined = torch.cat([data.own.scores[score], data.foreign.scores[score]])
    return auroc(joined, torch.arange(len(joined)) >= len(data.own.labels))


def test_curves_tell_the_figures_of_the_scores(built: list[Section], run_data: dict[str, RunData]) -> None:
    descriptions = {drawing.name: drawing.description for section in built for drawing in section.all_drawings()}
    own = run_data["dsui"].own
    assert (
        f"log-density {100 * foreign_auroc(run_data['dsui'], 'log_density'):.2f}"
        in descriptions["run-2-dsui-foreign-roc"]
    )
    assert f"energy {100 * auroc(own.scores['energy'], ~own.correct):.2f}" in descriptions["run-2-dsui-errors-roc"]


def test_the_results_of_several_runs_are_a_table_for_each_question_by_the_recommended_score() -> None:
    sets = ("svhn", "cifar100")
    scores = ("max_probability", "entropy", "uncertainty")
    found = {"max_probability": 0.7, "entropy": 0.8, "uncertainty": 0.9}
    rows = [
        replace(ROW, run=method, method=method, foreign=name, score=score, metrics={"auroc": found[score]})
        for method in ("dsui", "msp")
        for name in sets
        for score in scores
    ]
    outline = Outline(page("", "", [results_section(rows)]))
    (title,) = (caption.text for caption in outline.of("caption"))
    assert title == "Finding foreign images, by uncertainty *"
    text = results_section(rows).tables[0]
    assert [text.count(f">{name}") for name in ("svhn", "cifar100", "dsui", "msp")] == [1, 1, 2, 2]
    assert text.count("90.00") == 4
    assert "70.00" not in text
    assert "80.00" not in text


def headings(section: Section) -> list[str]:
    return [section.heading, *(heading for inner in section.sections for heading in headings(inner))]


def names(section: Section) -> set[str]:
    return {re.sub(r"^run-\d-[a-z]+-", "", drawing.name) for drawing in section.all_drawings()}


def test_errors_begin_with_the_curve_of_risk_over_coverage(built: list[Section]) -> None:
    drawn = [drawing.name.rpartition("dsui-")[2] for drawing in part(built, "dsui", "Its own errors").drawings]
    assert drawn == ["errors-risk-coverage", "errors-roc", "errors-precision-recall", "reliability"]


def test_densities_are_shown_of_a_method_that_has_them(built: list[Section]) -> None:
    of_run = {section.heading: section for section in built}
    assert "Class densities" in headings(of_run["Run dsui"])
    assert "Class densities" not in headings(of_run["Run msp"])
    only = names(of_run["Run dsui"]) - names(of_run["Run msp"])
    assert only == {"profile", "components", "distribution-density-max-probability", "distribution-density-entropy"}
    assert {"tsne", "tsne-foreign", "errors-roc", "errors-risk-coverage", "foreign-precision-recall"} < names(
        of_run["Run msp"]
    )
    assert {"reliability", "distribution-entropy", "loss", "accuracy"} < names(of_run["Run msp"])


def test_a_run_with_doubles_shows_the_components_of_its_upright_classes(tmp_path: Path) -> None:
    run = digit_runs.own_copy(digit_runs.run("dsui", doubles="turns"), tmp_path / "doubled")
    section = run_section(collect(run_facts(run)))
    (drawing,) = (each for each in section.all_drawings() if each.name.endswith("-components"))
    assert [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()] == [str(c) for c in range(10)]


def test_what_was_not_evaluated_is_a_sentence_that_says_what_to_run(built: list[Section], shelf: Path) -> None:
    attacks = next(inner for section in built for inner in section.sections if "FGSM" in inner.heading)
    command = f"dsui evaluate {shelf / 'msp'} {shelf / 'dsui'} --tasks fgsm"
    assert attacks.paragraphs == [f"No attack has been evaluated at two strengths or more; run: {command}"]
    provenance = built[-1]
    assert (
        "msp: not in results.jsonl, so computed for this page: misclassification, photos, noise."
        in provenance.paragraphs
    )
    assert not (shelf / "msp" / "results.jsonl").exists(), "the page does not change a run's results"


def test_the_command_that_attacks_names_what_it_needs_to_find_the_images(shelf: Path) -> None:
    facts = run_facts(shelf / "msp")

    def of(data: str, *, skip_bad: bool) -> list[str]:
        run = replace(facts, path=Path("my runs/a"), config=replace(facts.config, data=data))
        return shlex.split(assembly._attack_command([run], Path("my data"), skip_bad))[2:]

    assert of("digits", skip_bad=True) == ["my runs/a", "--tasks", "fgsm"], "its images come with scikit-learn"
    assert of("cifar10", skip_bad=True) == ["my runs/a", "--tasks", "fgsm", "--root", "my data"]
    assert of("folder:pets", skip_bad=True) == ["my runs/a", "--tasks", "fgsm", "--skip-bad"]
    assert of("folder:pets", skip_bad=False) == ["my runs/a", "--tasks", "fgsm"]


def test_attacks_of_one_strength_are_no_heading_without_content() -> None:
    attacked = [replace(ROW, task="fgsm", foreign=size, score="entropy", metrics={"auroc": 0.5}) for size in (0.1, 0.3)]
    one, two = (comparison_section(rows, "dsui evaluate").sections[-1] for rows in (attacked[:1], attacked))
    assert one.heading == two.heading == "Under attack by FGSM"
    assert (len(one.paragraphs), one.drawings) == (1, [])
    assert (two.paragraphs, len(two.drawings)) == ([], 1)


def test_nobody_needs_the_paper_to_read_the_page(outline: Outline) -> None:
    shown = " ".join(element.text for element in outline.of("main", "header", "footer"))
    assert not re.search(r"[Pp]aper|Figure\s\d", shown)
    assert "by t-SNE" in shown


def test_a_class_by_class_table_stands_with_the_errors_and_of_many_classes_it_is_short(
    built: list[Section], run_data: dict[str, RunData]
) -> None:
    own = run_data["dsui"].own
    (table,) = part(built, "dsui", "Its own errors", "Class by class").tables
    counted = confusion_matrix(own.labels, own.logits.argmax(1))
    rows = table.partition("<tbody>")[2].split("<tr>")[1:]
    for row, images, numbers in zip(rows, counted.sum(1), counted, strict=True):
        found = re.findall("<td>(.*?)</td>", row)
        assert found[0] == str(images)
        assert [0 if cell == NEVER else int(cell) for cell in found[2:]] == numbers.tolist()
    many = replace(run_data["dsui"].facts, classes=tuple(f"class {label}" for label in range(13)))
    wide = replace(own, logits=F.pad(own.logits, (0, 3), value=-1e9))
    section = _classes(replace(run_data["dsui"], facts=many, own=wide))
    assert "Largest confusions" in section.tables[0]
    assert [folded.summary for folded in section.folded_tables] == ["Accuracy of each class"]
    assert section.folded_tables[0].table.count('<th scope="row">') == 13


def part(built: list[Section], run: str, *path: str) -> Section:
    """A section within that of a run, by its headings."""
    found = next(section for section in built if section.heading == f"Run {run}")
    for heading in path:
        found = next(inner for inner in found.sections if inner.heading == heading)
    return found


def shown_images(section: Section) -> list[int]:
    """Their places in the data set."""
    return [int(re.findall(r"\d+", image.alternative)[0]) for image in section.images]


def test_the_images_shown_are_those_with_the_extreme_scores(built: list[Section], run_data: dict[str, RunData]) -> None:
    data, images = run_data["dsui"], part(built, "dsui", "Images to look at").sections
    uncertain, wrong, strange, passing = images
    uncertainty = data.own.scores["uncertainty"].numpy()
    assert sorted(uncertainty[shown_images(uncertain)]) == pytest.approx(np.sort(uncertainty)[-8:])
    assert all(re.search(r"is (\d), predicted (?!\1)", image.alternative) for image in wrong.images)
    errors = np.flatnonzero(~data.own.correct.numpy())
    assert shown_images(wrong)[0] == errors[uncertainty[errors].argmin()]
    density = -data.foreign.scores["log_density"].numpy()
    assert shown_images(strange)[0] == density.argmin()
    assert shown_images(passing)[0] == density.argmax()
    assert strange.images[0].lines[2] == f"log-density \N{MINUS SIGN}{-density.min():.1f}"


def test_a_name_written_from_right_to_left_does_not_turn_the_figures_beside_it_around() -> None:
    assert (apart("قطة"), apart("cat")) == ("\u2068قطة\u2069", "cat")


def test_the_profile_shows_the_pictures_of_its_two_images(built: list[Section], run_data: dict[str, RunData]) -> None:
    data, densities = run_data["dsui"], part(built, "dsui", "Class densities")
    normal, abnormal = shown_images(densities)
    density = -data.own.scores["log_density"]
    assert bool(data.own.correct[normal])
    assert density[normal] == density[data.own.correct].max()
    assert abnormal == int(data.foreign.scores["log_density"].argmax())
    assert densities.images[0].source == png(load("digits", "test").read(torch.tensor([normal]))[0])


@pytest.mark.parametrize("right", [True, False])
def test_a_run_without_errors_or_without_hits_says_so(run_data: dict[str, RunData], right: bool) -> None:
    own = run_data["msp"].own
    labels = own.logits.argmax(1) if right else (own.logits.argmax(1) + 1) % 10
    section = run_section(replace(run_data["msp"], own=replace(own, labels=labels)))
    errors = next(inner for inner in section.sections if inner.heading == "Its own errors")
    assert len(errors.drawings) == 1
    assert errors.paragraphs == [
        "Every image is classified correctly, so there are no errors to find."
        if right
        else "No image is classified correctly, so there is nothing to tell errors from."
    ]


def test_a_run_is_headed_by_how_it_was_trained_as_its_rows_have_it(run_data: dict[str, RunData]) -> None:
    of_fewer = [replace(row, recipe="demo, calibration=0.2") for row in run_data["msp"].rows]
    section = run_section(replace(run_data["msp"], rows=of_fewer))
    assert "backbone small, recipe demo, calibration=0.2, seed 0: " in section.paragraphs[0]


def test_a_page_opens_with_the_verdict_of_its_rows(run_data: dict[str, RunData]) -> None:
    data = run_data["msp"]
    blind = replace(data, rows=[replace(row, metrics={**row.metrics, "fpr95": 0.98}) for row in data.rows])
    section = verdict_section([blind])
    assert section.paragraphs[0].startswith(unbroken("Do not use this model: 98 % of foreign images (photos) pass at"))
    assert section.paragraphs[1].startswith("Next: ")
    (answers,) = section.tables
    assert answers.count('<th scope="row">') == 5
    assert "797 test images" in answers


def test_several_runs_have_a_line_each_in_the_verdict_and_their_answers_folded(built: list[Section]) -> None:
    section = built[0]
    assert section.heading == "Verdict"
    (summary,) = section.tables
    assert re.findall(r'<th scope="row">(\w+)</th>', summary) == ["msp", "dsui"]
    assert summary.count("this model") == 2
    (folded,) = section.folded_tables
    assert folded.table.count("Is it right?") == 2


@pytest.mark.usefixtures("no_figures_of_runs")
def test_a_single_run_answers_each_question_by_the_recommended_score(shelf: Path) -> None:
    outline = Outline(page("One", "", sections([run_facts(shelf / "msp")], CPU, foreign=("photos",))))
    shown = [caption.text for caption in outline.of("caption")][1:5]
    assert shown[0] == "Accuracy and calibration"
    assert [title.split(" (")[0] for title in shown[1:]] == [
        "Finding errors",
        "Finding foreign images: photos",
        "Finding noise",
    ]
    assert all(title.endswith("by uncertainty *") for title in shown[1:])


def test_all_scores_of_a_run_and_every_foreign_set_at_its_thresholds_are_shown(digit_files: Path, shelf: Path) -> None:
    for file in digit_files.rglob("*.png"):
        if file.read_bytes() == b"broken":
            file.unlink()
    folder = f"folder:{digit_files}"
    found = collect(run_facts(shelf / "msp"), foreign=("photos", folder))
    assert list(found.tradeoff.passing) == ["photos", folder, "noise"]
    section = run_section(found)
    assert section.sections[0].heading == "All scores"
    assert "msp: msp on digits, small, recipe demo, epochs=3, seed 0" in section.sections[0].tables[0]


def test_settings_of_mixtures_are_those_of_the_run_that_has_them(built: list[Section], outline: Outline) -> None:
    (folded,) = built[-1].folded_tables
    assert "Settings of runs with mixtures: dsui" in [caption.text for caption in outline.of("caption")]
    general, mixtures = folded.table.split('aria-label="Settings of runs with mixtures: dsui"')
    for setting in ("head", "components"):
        assert f">{setting}</th>" not in general
        assert f'<th scope="row">{setting}</th>' in mixtures


@pytest.fixture
def digit_files(tmp_path: Path) -> Path:
    """A hundred digits to train on and thirty to test with, of which one cannot be read."""
    folder = tmp_path / "digits"
    for split, count in (("train", 100), ("test", 30)):
        images = load("digits", split)
        for number, (pixels, label) in enumerate(zip(images.read(torch.arange(count)), images.labels, strict=False)):
            place = folder / split / images.classes[int(label)]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[0].numpy()).save(place / f"{number}.png")
    next((folder / "test" / "0").iterdir()).write_bytes(b"broken")
    return folder


def test_images_of_a_folder_are_shown_with_their_files(digit_files: Path, tmp_path: Path) -> None:
    run = run_facts(train("msp", tmp_path / "run", whole=folder_set(digit_files, "train", size=8, channels=1)))
    sources = ImageSources(run.config, run.classes, skip_bad=True)
    with OutputCache(run, CPU) as cache:
        found = collect_run_data("run", "run-1", Evaluation(cache, sources), ("photos",), POINTS)
    images = part([run_section(found)], "run", "Images to look at")
    uncertain, wrong, strange, _ = images.sections
    assert "Each file is named by its path below the data folder, so that you can open or move it." in images.paragraphs
    for image in (*uncertain.images, *wrong.images):
        assert image.file is not None
        assert image.source == png(torch.from_numpy(np.array(Image.open(digit_files / image.file)))[None])
        assert image.lines[0] == f"is {Path(image.file).parent.name}"
    assert {image.file for image in strange.images} == {None}


def test_results_of_other_images_than_there_are_now_are_left_out_and_computed(shelf: Path, tmp_path: Path) -> None:
    run = run_facts(Path(shutil.copytree(shelf / "msp", tmp_path / "msp")))
    fewer = replace(collect(run).rows[0], task="misclassification", score="entropy", n_positive=3, n_negative=17)
    old = [replace(fewer, metrics={"auroc": 0.123}), replace(fewer, task="accuracy", n_positive=None, n_negative=None)]
    append(run.path / "results.jsonl", [replace(row, weights=None) for row in old])
    found = collect(run)
    assert found.rows_read == 0
    assert found.remarks[0] == "msp: not in results.jsonl, so computed for this page: misclassification, photos, noise."
    assert found.remarks[1] == "msp: results of other test images than there are now are left out."
    assert 0.123 not in [row.metrics.get("auroc") for row in found.rows]


@pytest.mark.usefixtures("no_figures_of_runs")
def test_a_foreign_folder_that_is_gone_since_it_was_evaluated_is_done_without(shelf: Path, tmp_path: Path) -> None:
    run = run_facts(Path(shutil.copytree(shelf / "msp", tmp_path / "msp")))
    gone = [replace(ROW, task="ood", foreign=f"folder:{tmp_path / 'gone'}", weights=None)]
    append(run.path / "results.jsonl", gone)
    assert sections([run], CPU, root=tmp_path)


@pytest.mark.usefixtures("no_figures_of_runs")
def test_runs_of_one_name_are_toldapart(shelf: Path, tmp_path: Path) -> None:
    folders = [Path(shutil.copytree(shelf / "msp", tmp_path / name / "msp")) for name in ("a", "b")]
    weights, metadata = load_weights(folders[1] / WEIGHTS)
    weights["output.bias"] += torch.linspace(0, 1, 10)
    save_weights(folders[1] / WEIGHTS, weights, {k: v for k, v in metadata.items() if k != "schema"})
    both = sections([run_facts(folder) for folder in folders], CPU, foreign=("photos",))
    assert {f"Run {folder}" for folder in folders} < {section.heading for section in both}
    Outline(page("Same", "", both))
    shown = re.findall(r"<td>.*?</td>", both[1].tables[0])
    assert any("±" in cell for cell in shown), "they are two runs of one method"


@pytest.mark.usefixtures("no_figures_of_runs")
def test_runs_beside_count_in_the_tables_by_their_rows_and_are_named_where_the_page_says_how_it_was_made(
    shelf: Path, tmp_path: Path, run_data: dict[str, RunData]
) -> None:
    others = [Path(shutil.copytree(shelf / "dsui", tmp_path / name)) for name in ("b", "c", "unevaluated")]
    for folder in others[:2]:
        append(folder / "results.jsonl", [replace(row, weights=folder.name) for row in run_data["dsui"].rows])
    facts = [run_facts(folder) for folder in others]
    names = ["the one", "the second", "the third", "the fourth"]
    built = sections([run_facts(shelf / "dsui")], CPU, names=names, beside=facts, foreign=("photos",))
    assert [section.heading for section in built if section.heading.startswith("Run ")] == ["Run the one"]
    assert "Mean ± deviation over 3 runs." in built[1].tables[-1]
    assert "the second" not in "".join(built[0].tables + built[0].paragraphs), "only a run in full has a verdict"
    provenance = built[-1]
    assert "the fourth: nothing in results.jsonl, so it is in no table." in provenance.paragraphs
    differing, shared = provenance.tables
    assert all(name in differing for name in (*names, "unevaluated", "rows read"))
    assert "epochs" in shared
    assert "epochs" not in differing
    Outline(page("", "", built))


# The data of a run


@pytest.fixture
def run(shelf: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shelf / "msp", tmp_path / "msp"))


def test_rows_of_the_results_file_are_used_and_those_of_held_out_images_are_not(
    run: Path, run_data: dict[str, RunData]
) -> None:
    computed = [row for row in run_data["msp"].rows if row.task == "misclassification"]
    planted = [replace(row, run="old name", metrics={"auroc": 0.123}) for row in computed]
    held_out = [
        replace(row, task="noise", foreign="noise", protocol="noise, all in-domain images of held-out")
        for row in computed
    ]
    append(run / "results.jsonl", [*planted, *held_out])
    found = collect(run_facts(run))
    assert found.rows_read == len(planted)
    assert {row.metrics["auroc"] for row in found.rows if row.task == "misclassification"} == {0.123}
    assert {row.run for row in found.rows} == {"msp"}
    assert found.remarks == ["msp: not in results.jsonl, so computed for this page: photos, noise."]
    assert len((run / "results.jsonl").read_text().splitlines()) == len(planted) + len(held_out)


def test_what_cannot_be_read_is_a_remark(run: Path) -> None:
    (run / "results.jsonl").write_text("torn\n")
    with (run / "log.jsonl").open("a") as log:
        log.write('{"epoch": 3, "lo')
    remarks = collect(run_facts(run)).remarks
    assert f"{run / 'results.jsonl'} line 1 is not a results row: it is not whole JSON." in remarks
    assert f"Lines of {run / 'log.jsonl'} that cannot be read: 1." in remarks


def test_a_run_without_a_log_has_no_training_section(run: Path) -> None:
    (run / "log.jsonl").unlink()
    assert collect(run_facts(run)).log == []
    found = replace(collect(run_facts(run)), log=[])
    assert "Training" not in headings(run_section(found))


def test_a_run_that_knows_some_classes_is_shown_with_the_unknown_ones(tmp_path: Path) -> None:
    found = collect(run_facts(train("msp", tmp_path / "open", known="0,1,2,3,4,5")))
    assert found.foreign.name == "unknown classes"
    assert {"open-set", "ood", "noise"} < {row.task for row in found.rows}
    section = run_section(found)
    assert "Foreign images: unknown classes" in headings(section)
    images = part([section], found.name, "Images to look at", "Most foreign of unknown classes, by energy").images
    assert {image.lines[0] for image in images} <= {f"is {digit}" for digit in "6789"}


def test_without_a_foreign_set_noise_is_shown(shelf: Path) -> None:
    found = collect(run_facts(shelf / "msp"), foreign=("digits",))
    assert found.foreign.name == "noise"


def test_features_are_those_of_the_chosen_images(run_data: dict[str, RunData], shelf: Path) -> None:
    own = run_data["dsui"].own
    facts = run_facts(shelf / "dsui")
    with OutputCache(facts, CPU) as cache:
        whole = cache.get(ImageSources(facts.config, facts.classes).own()).whole()
    assert torch.equal(own.sample.features, whole.features[own.sample.indices])
    assert len(own.sample.indices) == POINTS


# Parts


def test_a_thumbnail_holds_the_very_pixels_and_large_images_shrink() -> None:
    generator = torch.Generator().manual_seed(0)
    for shape in ((1, 8, 8), (3, 32, 32), (3, 64, 64)):
        pixels = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
        image = Image.open(io.BytesIO(base64.b64decode(png(pixels).partition(",")[2])))
        array = np.asarray(image)
        assert np.array_equal(array if array.ndim == 3 else array[:, :, None], pixels.permute(1, 2, 0).numpy())
    large = png(torch.zeros(3, 224, 112, dtype=torch.uint8))
    assert Image.open(io.BytesIO(base64.b64decode(large.partition(",")[2]))).size == (32, 64)


def test_most_is_a_stable_choice_among_the_marked() -> None:
    scores = torch.tensor([1.0, 3.0, 3.0, 2.0, 9.0])
    marks = torch.tensor([True, True, True, True, False])
    assert highest(scores, marks, count=3).tolist() == [1, 2, 3]
    assert highest(scores, count=2).tolist() == [4, 1]
    assert highest(scores, torch.zeros(5, dtype=torch.bool)).tolist() == []


def test_a_table_keeps_its_decimal_points_below_each_other() -> None:
    table = Table(
        "A <title>",
        (Column(("x", "AUROC"), True, "%", 100, 2), Column(("x", "AURC"), False, "", 1, 2)),
        (
            Line("a & b", (Entry(0.9, 0.01, 5, 0.01, "✓"), Entry(3.0))),
            Line("quoted", (Entry(0.8, None), Entry(None)), quoted=True),
            Line("c", (Entry(0.95, 0.112, 5), Entry(2.0))),
        ),
    )
    html = to_html(table)
    outline = Outline(html)
    rows = html.split("<tbody>")[1].split("<tr")[1:]
    assert ["a &amp; b" in rows[0], ">c<" in rows[1], "quoted" in rows[2]] == [True] * 3, "quoted lines come last"
    widths = [re.findall(r'style="(width:\d+ch)"', row) for row in rows]
    assert widths[0] == widths[1] == widths[2] == ["width:8ch", "width:2ch"]
    assert "<strong>95.00</strong>" in rows[1]
    assert "<strong>2.00</strong>" in rows[1]
    assert outline.of("caption")[0].text == "A <title>"
    assert [th.attributes.get("scope") for th in outline.of("th")] == [
        "col",
        "colgroup",
        "col",
        "col",
        "row",
        "row",
        "row",
    ]


def test_figures_are_written_beside_the_page(built: list[Section], tmp_path: Path) -> None:
    training = next(inner for section in built for inner in section.sections if inner.heading == "Training")
    written = write_figures(tmp_path / "new" / "figures", [training])
    assert [path.name for path in written] == [
        f"run-1-msp-{name}.{ending}" for name in ("loss", "accuracy") for ending in ("svg", "png")
    ]
    assert all(path.stat().st_size > 1000 for path in written)
    (tmp_path / "file").write_text("")
    with pytest.raises(DsuiError, match=r"file cannot be created \(File exists\); choose another --figures\."):
        write_figures(tmp_path / "file", [training])
    with pytest.raises(DsuiError, match=r"cannot be written \(No such file or directory\); choose another place\."):
        write_page(tmp_path / "none" / "page.html", "")


def test_a_class_whose_name_is_no_unicode_does_not_cost_the_page(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", page("b\udcff", "", []))
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<title>b�</title>") == 1


def test_every_figure_of_a_page_has_a_file_name_of_its_own(built: list[Section]) -> None:
    found = [drawing.name for section in built for drawing in section.all_drawings()]
    assert len(found) == len(set(found))
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in found)


@pytest.mark.parametrize("make", [lambda: page("", "", []), lambda: sections([], CPU)])
def test_a_page_without_its_packages_is_one_sentence(
    make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(DsuiError, match=r"^figures and reports need jinja2; run pip install jinja2\.$"):
        make()


def test_a_page_holds_no_character_that_html_or_svg_forbids() -> None:
    assert valid("\x1b[31m caf\udce9 \x00\x9b\ufffe 名\n\t") == "�[31m caf� ��� 名\n\t"
    assert "\x1b" not in page("\x1b", "caf\udce9", [])
