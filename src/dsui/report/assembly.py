"""From the folders of trained runs to the sections of a page."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import torch

from dsui.checks import require
from dsui.data.registry import DATASETS, FOLDER, check_present
from dsui.errors import DataError
from dsui.evaluation.evaluate import open_evaluation
from dsui.progress import Progress, silent
from dsui.report.figures import embedding
from dsui.report.overview import comparison_section, provenance_section, results_section
from dsui.report.run_data import RunData, collect_run_data, evaluated_foreign_sets, read_run_results
from dsui.report.run_section import PARTS, run_section
from dsui.report.section import Section, slug
from dsui.report.verdict_section import verdict_section
from dsui.runs.model import RunFacts

DRAWING = "drawing"
"""The end of the name under which `progress` reports the drawn parts of a run."""


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
    progress: Progress = silent,
    warn: Callable[[str], None] = lambda _sentence: None,
) -> list[Section]:
    """All sections of a page about `runs`.

    `beside`: runs that count in tables and figures of all runs only, with the rows of their results files.
    `names`: how the page calls `runs` and `beside`; by default by their folders.
    `foreign`: the foreign sets to compare with; by default those a run was evaluated on, without those that are no
    longer there, or else all that are there.
    `keep`: leave computed outputs in the runs' folders. `progress` is called for images predicted and parts drawn.
    """
    require("jinja2", "matplotlib", "openTSNE")
    detailed = []
    shown = list(names or _display_names([*runs, *beside]))
    for number, (facts, name) in enumerate(zip(runs, shown[: len(runs)], strict=True), 1):
        with open_evaluation(
            facts,
            device,
            root=root,
            skip_bad=skip_bad,
            keep_outputs=keep,
            progress=_prefixed(name, progress),
            warn=warn,
        ) as evaluation:
            evaluated = [other for other in evaluated_foreign_sets(facts.path) if _is_present(other, root)]
            others = foreign or evaluated or evaluation.sources.foreign_names()
            key = f"run-{number}-{slug(name)}"
            detailed.append(collect_run_data(name, key, evaluation, others, embedding.POINTS))
    others_beside = [read_run_results(name, facts) for name, facts in zip(shown[len(runs) :], beside, strict=True)]
    all_results = [*detailed, *others_beside]
    rows = [row for results in all_results for row in results.rows]
    attack = _attack_command([*runs, *beside], root, skip_bad)
    head = [verdict_section(detailed), results_section(rows), comparison_section(rows, attack)]
    run_sections = [run_section(data, _part_counter(data, progress)) for data in detailed]
    return [*head, *run_sections, provenance_section(all_results)]


def _is_present(foreign: str, root: Path | None) -> bool:
    """Images made from a run's own are not shown."""
    try:
        check_present(foreign, root)
    except DataError:
        return False
    return True


def _display_names(runs: Sequence[RunFacts]) -> list[str]:
    """The names of the folders; whole paths for runs whose folders have the same name."""
    counts = Counter(facts.name for facts in runs)
    return [facts.name if counts[facts.name] == 1 else str(facts.path) for facts in runs]


def _attack_command(runs: Sequence[RunFacts], root: Path | None, skip_bad: bool) -> str:
    """The command that evaluates these runs under attack, with the options it needs to find their images."""
    folders = [facts.config.data.startswith(FOLDER) for facts in runs]
    stored = [facts.config.data in DATASETS and bool(DATASETS[facts.config.data].files) for facts in runs]
    command = ["dsui", "evaluate", *(str(facts.path) for facts in runs), "--tasks", "fgsm"]
    command += ["--root", str(root)] if root is not None and any(stored) else []
    return shlex.join([*command, *(["--skip-bad"] if skip_bad and any(folders) else [])])


def _prefixed(run: str, progress: Progress) -> Progress:
    return lambda name, done, total: progress(f"{run}: {name}", done, total)


def _part_counter(data: RunData, progress: Progress) -> Callable[[], None]:
    """A function to call after each drawn part of a run; it reports how many are done."""
    numbers = count(1)
    return lambda: progress(f"{data.name}: {DRAWING}", next(numbers), PARTS)
