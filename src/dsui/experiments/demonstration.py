"""What `dsui demo` shows: DS-UI and three rivals on 256 embedded digits, one table, one verdict and one page.

The settings were chosen on these digits (docs/research-log.md, "How the digits experiment was chosen"), so it
demonstrates and does not prove. The table has `uncertainty` alone; other scores are on the page.
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
SHOWN = (("dsui", False), ("msp", False), ("dsui", True))
"""The runs of the first seed that the page shows in full: method, and whether digits were left out."""
QUESTIONS = {
    "accuracy": ("accuracy", "share of 1,541 test digits that are predicted correctly"),
    "misclassification": ("errors", "its own mistakes among the test digits"),
    "ood": ("photos", "1,500 patches of photographs"),
    "open-set": ("unseen", "test digits 3, 6, 7 and 8, for networks trained on the other six"),
    "noise": ("noise", "10,000 images of uniform noise"),
    "fgsm": ("FGSM", "the test digits after an attack of this strength"),
}
"""A column's heading by its task, and what it means."""
METHODS = {
    "dsui": "the network with a mixture of Gaussians for each class",
    "msp": "the same network with a plain softmax",
    "rkl": "the same network trained as a prior network",
    "ensemble": "three networks with a plain softmax",
}
CAVEAT = (
    "A demonstration, not a proof: the settings were chosen on these digits, and for DS-UI more of them were tried "
    "(docs/research-log.md). The seeds share their training digits, so deviations are those of start and order alone."
)


def table(study: Study) -> Table:
    """A line for each method, a column for each question; the attack is the weakest."""
    epsilon = _epsilon(study)
    shown = [f for f in columns(study.grid) if not isinstance(f.foreign, float) or f.foreign == epsilon]
    rows = [row for cell in study.grid.cells for row in study.outcome(cell).rows]
    found = compare(rows, shown, title=study.grid.title)
    own = tuple(
        replace(column, header=_header(figure, column.header[-1]), decimals=1)
        for figure, column in zip(shown, found.columns, strict=True)
    )
    return replace(found, columns=own, note=f"{found.note}{_still_right(rows, shown)}")


def _still_right(rows: Sequence[ResultRow], shown: Sequence[Figure]) -> str:
    """An attack that fails cannot well be noticed, so the share of digits that it left right belongs to the figures."""
    attack = next(figure for figure in shown if figure.task == "fgsm")._replace(score="prediction", metric="accuracy")
    means = {line.label: line.cells[0].mean for line in compare(rows, [attack]).lines}
    each = ", ".join(f"{label} {100 * mean:.1f}" for label, mean in means.items() if mean is not None)
    return f" Still right after FGSM {attack.foreign:g}, in %: {each}." if each else ""


def glossary(found: Table) -> list[tuple[str, str]]:
    """The words of the table, and AUROC."""
    questions = [
        (column.header[0], meaning) for column, (_, meaning) in zip(found.columns, QUESTIONS.values(), strict=True)
    ]
    auroc = ("AUROC", "how often such an image gets a larger uncertainty than a sound one")
    return [*((line.label, METHODS[line.label]) for line in found.lines), *questions, auroc]


def verdict(found: Table) -> str:
    """Where DS-UI is ahead of its rivals and where behind: by marks, or by means where nothing is tested."""
    ours = next(line for line in found.lines if line.label == "dsui")
    rivals = [line for line in found.lines if line is not ours]
    tested = any(cell.mark for line in rivals for cell in line.cells)
    won, lost, compared = 0, dict[str, list[str]](), 0
    for rival in rivals:
        for column, cell, theirs in zip(found.columns, ours.cells, rival.cells, strict=True):
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
    rest = f"{undecided} are within chance" if tested else "nothing is tested for want of a second run"
    where = "; ".join(f"{question} ({', '.join(names)})" for question, names in lost.items())
    return (
        f"Against its rivals DS-UI is better in {won} of {compared} comparisons, worse in {losses}, and {rest}."
        f"{f' Worse at: {where}.' if lost else ''}"
    )


def report_path(study: Study) -> Path:
    """Where the page is, or will be: one of other rows than there are now is taken away."""
    path, results = study.out / PAGE, study.out / RESULTS
    former = results.read_bytes() if results.exists() else b""
    study.collect()
    if results.read_bytes() != former:
        path.unlink(missing_ok=True)
    return path


def write_report(study: Study, found: Table, drawn: Callable[[int, int], None]) -> None:
    """One page: the table, lines over all runs, and three of them in full. `drawn` hears of its parts."""
    cells = study.grid.cells
    kinds = {(cell.config.method, cell.config.known is not None, cell.config.seed): cell for cell in cells}
    shown = [kinds[method, partial, cells[0].config.seed] for method, partial in SHOWN]
    others = [cell for cell in cells if cell not in shown]
    for cell in cells:  # where `dsui report` and `dsui compare` look for them too
        if not (path := study.run_path(cell) / RESULTS).exists():
            append(path, study.outcome(cell).rows)
    parts = count(1)
    made = sections(
        [run_facts(study.run_path(cell)) for cell in shown],
        torch.device("cpu"),
        names=[_name(cell) for cell in (*shown, *others)],
        beside=[run_facts(study.run_path(cell)) for cell in others],
        foreign=cells[0].foreign,
        keep=False,
        progress=lambda name, _, __: drawn(next(parts), PARTS * len(shown)) if name.endswith(DRAWING) else None,
    )
    words = text_table("What the words mean", "word", ["meaning"], [(word, [text]) for word, text in glossary(found)])
    summary = Section("summary", "In short", [verdict(found), CAVEAT], [to_html(found), words])
    lead = f"{len(cells)} networks on embedded digits, {len(shown)} of them in full. Made with dsui demo."
    write_page(study.out / PAGE, page("DS-UI and three rivals on 256 digits", lead, [summary, *made]))


def _header(figure: Figure, metric: str) -> tuple[str, str]:
    heading, _ = QUESTIONS[figure.task]
    strength = f" {figure.foreign:g}" if isinstance(figure.foreign, float) else ""
    return f"{heading}{strength}", "" if metric == heading else metric


def _epsilon(study: Study) -> float:
    return min(epsilon for cell in study.grid.cells for epsilon in cell.epsilons)


def _name(cell: Cell) -> str:
    known = cell.config.known
    return f"{cell.config.method}, {10 if known is None else len(known.split(','))} digits, seed {cell.config.seed}"
