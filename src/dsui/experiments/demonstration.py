"""The results of `dsui demo`: DS-UI and three rivals on 256 embedded digits, in one table, one verdict and one page.

The settings were chosen on these digits (docs/log/digits-choice.md), so this is a demonstration and not a proof. The
table shows only the score `uncertainty`; the page has the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import torch

from dsui.evaluation.results import ResultRow, append
from dsui.evaluation.statistics import DIFFERENT
from dsui.experiments.grid import Cell
from dsui.experiments.study import Study
from dsui.experiments.study_table import columns
from dsui.report.assembly import DRAWING, sections
from dsui.report.columns import Figure
from dsui.report.comparison import compare
from dsui.report.html_table import text_table, to_html
from dsui.report.page import page, write_page
from dsui.report.run_section import PARTS
from dsui.report.section import Section
from dsui.report.tables import Table
from dsui.runs.folder import RESULTS
from dsui.runs.model import run_facts

PAGE = "report.html"
SHOWN_RUNS = (("dsui", False), ("msp", False), ("dsui", True))
"""The runs of the first seed that the page shows in full: the method, and whether it was trained on only six digits."""
QUESTIONS = {
    "accuracy": ("accuracy", "share of 1,541 test digits that are predicted correctly"),
    "misclassification": ("errors", "its own mistakes among the test digits"),
    "ood": ("photos", "1,500 patches of photographs"),
    "open-set": ("unseen", "test digits 3, 6, 7 and 8, for networks trained on the other six"),
    "noise": ("noise", "10,000 images of uniform noise"),
    "fgsm": ("FGSM", "the test digits after an attack of this strength"),
}
"""By task: the heading of its column, and what it means."""
METHODS = {
    "dsui": "the network with a mixture of Gaussians for each class",
    "msp": "the same network with a plain softmax",
    "rkl": "the same network trained as a prior network",
    "ensemble": "three networks with a plain softmax",
}
CAVEAT = (
    "A demonstration, not a proof: the settings were chosen on these digits, and for DS-UI more of them were tried "
    "(docs/log/digits-choice.md). The seeds share their training digits, so the deviations are those of initial "
    "weights and order alone."
)


def results_table(study: Study) -> Table:
    """A line for each method, a column for each question; of the attacks only the weakest."""
    epsilon = min(epsilon for cell in study.grid.cells for epsilon in cell.epsilons)
    figures = [f for f in columns(study.grid) if not isinstance(f.foreign, float) or f.foreign == epsilon]
    rows = [row for cell in study.grid.cells for row in study.result(cell).rows]
    table = compare(rows, figures, title=study.grid.title)
    renamed = tuple(
        replace(column, header=_header(figure, column.header[-1]), decimals=1)
        for figure, column in zip(figures, table.columns, strict=True)
    )
    return replace(table, columns=renamed, note=f"{table.note}{_accuracy_after_attack(rows, figures)}")


def _accuracy_after_attack(rows: Sequence[ResultRow], figures: Sequence[Figure]) -> str:
    """An attack that changes no prediction is hard to detect, so the table also says what each attack achieved."""
    attack = next(figure for figure in figures if figure.task == "fgsm")._replace(score="prediction", metric="accuracy")
    means = {line.label: line.cells[0].mean for line in compare(rows, [attack]).lines}
    each = ", ".join(f"{label} {100 * mean:.1f}" for label, mean in means.items() if mean is not None)
    return f" Still right after FGSM {attack.foreign:g}, in %: {each}." if each else ""


def glossary(table: Table) -> list[tuple[str, str]]:
    """The terms of the table and what they mean."""
    questions = [
        (column.header[0], meaning) for column, (_, meaning) in zip(table.columns, QUESTIONS.values(), strict=True)
    ]
    auroc = ("AUROC", "how often such an image gets a larger uncertainty than a sound one")
    return [*((line.label, METHODS[line.label]) for line in table.lines), *questions, auroc]


def verdict(table: Table) -> str:
    """Where DS-UI is better than its rivals and where worse: significantly or, if nothing is tested, by its mean."""
    ours = next(line for line in table.lines if line.label == "dsui")
    rivals = [line for line in table.lines if line is not ours]
    tested = any(cell.mark for line in rivals for cell in line.cells)
    won, lost, compared = 0, dict[str, list[str]](), 0
    for rival in rivals:
        for column, cell, theirs in zip(table.columns, ours.cells, rival.cells, strict=True):
            if cell.mean is None or theirs.mean is None:
                continue
            compared += 1
            if tested and theirs.mark != DIFFERENT:
                continue
            ahead = (cell.mean - theirs.mean) * (1 if column.higher_is_better else -1)
            won += ahead > 0
            if ahead < 0:
                lost.setdefault(column.header[0], []).append(rival.label)
    losses = sum(map(len, lost.values()))
    undecided = compared - won - losses
    rest = f"{undecided} are within chance" if tested else "nothing is tested, since there is only one run of each"
    where = "; ".join(f"{question} ({', '.join(names)})" for question, names in lost.items())
    return (
        f"Against its rivals DS-UI is better in {won} of {compared} comparisons, worse in {losses}, and {rest}."
        f"{f' Worse at: {where}.' if lost else ''}"
    )


def report_path(study: Study) -> Path:
    """Where the page is or will be; a page of other results than the present ones is deleted."""
    path, results = study.out / PAGE, study.out / RESULTS
    previous = results.read_bytes() if results.exists() else b""
    study.collect()
    if results.read_bytes() != previous:
        path.unlink(missing_ok=True)
    return path


def write_report(study: Study, table: Table, progress: Callable[[int, int], None]) -> None:
    """Write one page: the table, figures over all runs, and three runs in full.

    `progress` is called with the number of parts that are done and of all parts.
    """
    cells = study.grid.cells
    kinds = {(cell.config.method, cell.config.known is not None, cell.config.seed): cell for cell in cells}
    shown = [kinds[method, partial, cells[0].config.seed] for method, partial in SHOWN_RUNS]
    others = [cell for cell in cells if cell not in shown]
    for cell in cells:  # so that `dsui report` and `dsui compare` find the results in the run folders
        if not (path := study.run_path(cell) / RESULTS).exists():
            append(path, study.result(cell).rows)
    parts = count(1)
    report_sections = sections(
        [run_facts(study.run_path(cell)) for cell in shown],
        torch.device("cpu"),
        names=[_name(cell) for cell in (*shown, *others)],
        beside=[run_facts(study.run_path(cell)) for cell in others],
        foreign=cells[0].foreign,
        keep=False,
        progress=lambda name, _, __: progress(next(parts), PARTS * len(shown)) if name.endswith(DRAWING) else None,
    )
    terms = text_table("What the words mean", "word", ["meaning"], [(term, [text]) for term, text in glossary(table)])
    summary = Section("summary", "In short", [verdict(table), CAVEAT], [to_html(table), terms])
    lead = f"{len(cells)} networks on embedded digits, {len(shown)} of them in full. Made with dsui demo."
    title, own_words = "DS-UI and three rivals on 256 digits", dict(glossary(table))
    write_page(study.out / PAGE, page(title, lead, [summary, *report_sections], own_words))


def _header(figure: Figure, metric: str) -> tuple[str, str]:
    heading, _ = QUESTIONS[figure.task]
    strength = f" {figure.foreign:g}" if isinstance(figure.foreign, float) else ""
    return f"{heading}{strength}", "" if metric == heading else metric


def _name(cell: Cell) -> str:
    known = cell.config.known
    return f"{cell.config.method}, {10 if known is None else len(known.split(','))} digits, seed {cell.config.seed}"
