"""A comparison as a person reads it: one table for each question, with methods as lines and metrics as columns.

Where a question was asked of several data sets or foreign sets, or is answered by several scores, each of these cases
is a group of lines. Where only one run or method is shown, the cases themselves are the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dsui.evaluation.paper_tables import PaperRow
from dsui.evaluation.reliability import SCALED
from dsui.evaluation.results import ResultRow
from dsui.report.columns import Figure, figure_of
from dsui.report.comparison import available, compare
from dsui.report.comparison_legend import Legend, ShortLabels
from dsui.report.comparison_lines import latest_rows
from dsui.report.comparison_questions import MARK, QUESTIONS, STREAM, Question, marked_name, question_of, usual_figures
from dsui.report.metric_formats import format_of
from dsui.report.run_table import run_title
from dsui.report.significance import STAND_IN
from dsui.report.tables import Entry, Line, Table


@dataclass(frozen=True)
class QuestionTables:
    """`note` is about all tables; `legend` says what the letters in their labels stand for.

    `names` are those by which a line can be made the reference.
    """

    title: str
    tables: tuple[Table, ...]
    legend: Legend
    note: str
    names: tuple[str, ...]


class _Case(NamedTuple):
    """What a question was asked of and by which score it is answered, as a reader sees it; `places` by metric."""

    images: str
    score: str
    places: Mapping[str, int]


_Counts = Mapping[Figure, str]
"""How many images there are to find, by `_images`; nothing where runs differ."""


def compare_by_question(
    rows: Sequence[ResultRow],
    figures: Sequence[Figure],
    *,
    quoted: Iterable[PaperRow] = (),
    reference: str = "dsui",
    equal_variances: bool = True,
    correct: bool = False,
) -> QuestionTables:
    """The tables of these figures, which are tested, corrected and ranked together, as `compare` does."""
    labels = ShortLabels()
    whole = compare(
        rows,
        figures,
        quoted=quoted,
        reference=reference,
        equal_variances=equal_variances,
        correct=correct,
        labelled=labels,
    )
    homes = list(dict.fromkeys(_home(figure) for figure in figures))
    counts = _counts(rows)
    tables = []
    for task in dict.fromkeys((*QUESTIONS, *(figure.task for figure in figures))):
        if own := {figure: place for place, figure in enumerate(figures) if figure.task == task}:
            cases = _cases(task, own, counts, several_homes=len(homes) > 1)
            question = question_of(task)
            if task == "fgsm" and (strengths := _strengths(rows)) > (few := {figure.foreign for figure in own}):
                question = question._replace(title=f"{question.title}, the {len(few)} weakest of {len(strengths)}")
            tables.append(_question_table(question, own, cases, whole.lines))
    subject = "Comparison" if len(whole.lines) > 1 else whole.lines[0].name
    return QuestionTables(
        f"{subject}: {homes[0]}" if len(homes) == 1 else subject,
        tuple(tables),
        labels.legend,
        " ".join(filter(None, (whole.note, _words_note(figures)))),
        (*(line.label for line in whole.lines), *labels.long),
    )


def run_by_question(rows: Sequence[ResultRow], *, every_stream: bool, every_attack: bool) -> QuestionTables:
    """The tables of one run, by the scores of these rows; what the notes say of several runs is left out.

    `every_stream`: also the accuracy of the mixtures' own prediction.
    """
    figures = usual_figures(available(rows), rows, every_score=True, every_attack=every_attack)
    chosen = [each for each in figures if every_stream or each.task != "accuracy" or each.score in {STREAM, None}]
    tables = compare_by_question(rows, chosen)
    return replace(tables, title=run_title(rows[0]), legend=Legend("", ()), note=_words_note(chosen))


def _words_note(figures: Sequence[Figure]) -> str:
    """What the mark and the word "scaled" mean, where they stand."""
    notes = [f"{MARK} the recommended score."] if any(figure.score == STAND_IN for figure in figures) else []
    if any(figure.metric.startswith(SCALED) for figure in figures):
        notes.append("Scaled: by the run's temperature, as `dsui predict` states probabilities.")
    return " ".join(notes)


def _question_table(question: Question, figures: Iterable[Figure], cases: list[_Case], lines: Sequence[Line]) -> Table:
    """A group of lines for each case; where there is one line, a line for each case."""
    found = dict.fromkeys(figure.metric for figure in figures)
    metrics = [*(name for name in question.metrics if name in found), *(m for m in found if m not in question.metrics)]
    several_images, several_scores = len({case.images for case in cases}) > 1, len({case.score for case in cases}) > 1
    shown = []
    for case in cases:
        images, score = case.images if several_images else "", case.score if several_scores else ""
        of_case = [(line, tuple(_cell(line, case, metric) for metric in metrics)) for line in lines]
        with_figures = [(line, cells) for line, cells in of_case if any(cell.mean is not None for cell in cells)]
        for line, cells in with_figures or of_case:
            if len(lines) > 1:
                label, group = line.label, ", ".join(filter(None, (images, score and f"by {score}")))
            else:
                label, group = score or images or line.label, images
            shown.append(Line(label, cells, line.quoted, group))
    title = question.title
    if not several_images and cases[0].images:
        title += f" {cases[0].images}" if cases[0].images.startswith("(") else f": {cases[0].images}"
    if not several_scores and cases[0].score not in {"", STREAM}:
        title += f", by {cases[0].score}"
    corner = (
        "score" if several_scores and len(lines) == 1 else "images" if several_images and len(lines) == 1 else "method"
    )
    return Table(title, tuple(format_of(name).column() for name in metrics), tuple(shown), corner=corner)


def _cell(line: Line, case: _Case, metric: str) -> Entry:
    return line.cells[case.places[metric]] if metric in case.places else Entry()


def _cases(task: str, figures: Mapping[Figure, int], counts: _Counts, several_homes: bool) -> list[_Case]:
    """Cases of the same images stand together, the recommended score first, attacks from the weakest on.

    What depends on no score, accuracy under attack, belongs to the case of each.
    """
    by_images: dict[Figure, dict[str, dict[str, int]]] = {}
    for figure, place in figures.items():
        by_score = by_images.setdefault(_images(figure), {})
        by_score.setdefault(figure.score or STREAM, {})[figure.metric] = place
    order = list(by_images)
    if task == "fgsm":
        order.sort(key=lambda images: (images.data, images.backbone or "", images.foreign))
    cases = []
    for images in order:
        by_score = by_images[images]
        of_all = by_score.pop(STREAM) if task != "accuracy" and STREAM in by_score and len(by_score) > 1 else {}
        for score in sorted(by_score, key=lambda name: name != STAND_IN):
            text = _images_text(images, counts.get(images, ""), several_homes)
            cases.append(_Case(text, marked_name(score), of_all | by_score[score]))
    return cases


def _images(figure: Figure) -> Figure:
    """What is common to all scores and metrics of the same images."""
    return figure._replace(score=None, metric="")


def _home(figure: Figure) -> str:
    return ", ".join(filter(None, (figure.data, figure.backbone)))


def _images_text(images: Figure, count: str, several_homes: bool) -> str:
    """As in "cifar10, resnet18 → svhn (26,032 images)"; without what needs no saying."""
    foreign = "" if images.foreign in {None, images.task} else images.foreign
    name = foreign if isinstance(foreign, str) else f"ε {foreign:.3g}"
    named = " → ".join(filter(None, (_home(images) if several_homes else "", name)))
    return " ".join(filter(None, (named, f"({count})" if count else "")))


def _strengths(rows: Iterable[ResultRow]) -> set[str | float | None]:
    return {row.foreign for row in rows if row.task == "fgsm"}


def _counts(rows: Iterable[ResultRow]) -> _Counts:
    """From the rows of rankings; of its own errors a run has another number than the next, but of the same images."""
    found: dict[Figure, set[tuple[int, int]]] = {}
    for row in latest_rows(rows):
        if row.n_positive is not None and row.n_negative is not None and row.task not in {"accuracy", "fgsm"}:
            images = _images(figure_of(row, ""))
            found.setdefault(images, set()).add((row.n_positive, row.n_negative))
    counts = {}
    for images, pairs in found.items():
        (positive, negative), *others = pairs
        if images.task == "misclassification":
            total = {sum(pair) for pair in pairs}
            errors = "" if others else f"{positive:,} of "
            counts[images] = f"{errors}{positive + negative:,} images" if len(total) == 1 else ""
        else:
            counts[images] = f"{positive:,} images" if len({pair[0] for pair in pairs}) == 1 else ""
    return counts
