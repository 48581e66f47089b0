"""From the folders of trained runs to the sections of a page."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from dsui.checks import require
from dsui.data.registry import DATASETS, FOLDER, folder_path
from dsui.evaluation.evaluate import open_evaluation
from dsui.evaluation.tasks import Progress
from dsui.report.evidence import Evidence, foreign_sets, gather, record
from dsui.report.figures import embedding
from dsui.report.overview import comparison_section, making_section, results_section
from dsui.report.run_section import PARTS, run_section, scores_section
from dsui.report.section import Section, slug
from dsui.runs.model import RunFacts

DRAWING = "drawing"
"""What `progress` hears, after a run's name, of each part drawn."""


def sections(
    runs: Sequence[RunFacts],
    device: torch.device,
    *,
    names: Sequence[str] | None = None,
    beside: Sequence[RunFacts] = (),
    foreign: Sequence[str] = (),
    root: Path | None = None,
    skip_bad: bool = False,
    keep: bool = True,
    progress: Progress = lambda _name, _done, _total: None,
    warn: Callable[[str], None] = lambda _sentence: None,
) -> list[Section]:
    """All about `runs`; `beside` are runs that count in tables and lines alone, with the rows of their results files.

    `names` are those of `runs` and `beside` on the page, by default their folders'.
    `foreign`: the sets to compare with; by default those of them that are there a run was evaluated on, or else all.
    `keep`: leave computed outputs in the runs' folders. `progress` hears of images predicted and parts drawn.
    """
    require("jinja2", "matplotlib", "openTSNE")
    found = []
    shown = list(names or _names([*runs, *beside]))
    for number, (facts, name) in enumerate(zip(runs, shown[: len(runs)], strict=True), 1):
        with open_evaluation(
            facts,
            device,
            root=root,
            skip_bad=skip_bad,
            keep_outputs=keep,
            progress=_of(name, progress),
            warn=warn,
        ) as evaluation:
            there = evaluation.sources.foreign_names()
            evaluated = [other for other in foreign_sets(facts.path) if other in there or _is_folder(other)]
            others = foreign or evaluated or there
            found.append(gather(name, f"run-{number}-{slug(name)}", evaluation, others, embedding.POINTS))
    records = [record(name, facts) for name, facts in zip(shown[len(runs) :], beside, strict=True)]
    everyone = [*found, *records]
    rows = [row for each in everyone for row in each.rows]
    alone = len(everyone) == 1
    if alone:
        scores = scores_section(found[0])
        head = [Section("results", "Results", scores.words, scores.tables)]
    else:
        head = [results_section(rows)]
    head.append(comparison_section(rows, _attack([*runs, *beside], root, skip_bad)))
    return [*head, *(run_section(each, alone, _steps(each, progress)) for each in found), making_section(everyone)]


def _is_folder(foreign: str) -> bool:
    return foreign.startswith(FOLDER) and folder_path(foreign).is_dir()


def _names(runs: Sequence[RunFacts]) -> list[str]:
    """Folder names, or whole paths where two are alike."""
    counts = Counter(facts.name for facts in runs)
    return [facts.name if counts[facts.name] == 1 else str(facts.path) for facts in runs]


def _attack(runs: Sequence[RunFacts], root: Path | None, skip_bad: bool) -> str:
    """The command that evaluates these runs under attack, with what it needs to find their own images."""
    folders = [facts.config.data.startswith(FOLDER) for facts in runs]
    stored = [facts.config.data in DATASETS and bool(DATASETS[facts.config.data].files) for facts in runs]
    words = ["dsui", "evaluate", *(str(facts.path) for facts in runs), "--tasks", "fgsm"]
    words += ["--root", str(root)] if root is not None and any(stored) else []
    return shlex.join([*words, *(["--skip-bad"] if skip_bad and any(folders) else [])])


def _of(run: str, progress: Progress) -> Progress:
    return lambda name, done, total: progress(f"{run}: {name}", done, total)


def _steps(evidence: Evidence, progress: Progress) -> Callable[[], None]:
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(f"{evidence.name}: {DRAWING}", done, PARTS)

    return step
