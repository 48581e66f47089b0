"""From the folders of trained runs to the sections of a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from dsui.data.registry import FOLDER
from dsui.evaluation.cache import OutputCache
from dsui.evaluation.model import RunFacts
from dsui.evaluation.sources import Sources
from dsui.evaluation.tasks import Evaluation, Progress
from dsui.report.evidence import Evidence, foreign_sets, gather
from dsui.report.figures import embedding
from dsui.report.installed import require
from dsui.report.overview import comparison_section, making_section, results_section
from dsui.report.run_section import PARTS, run_section, scores_section
from dsui.report.section import Section, slug


def sections(
    runs: Sequence[RunFacts],
    device: torch.device,
    *,
    foreign: Sequence[str] = (),
    root: Path | None = None,
    skip_bad: bool = False,
    keep: bool = True,
    progress: Progress = lambda _name, _done, _total: None,
    warn: Callable[[str], None] = lambda _sentence: None,
) -> list[Section]:
    """`foreign`: the sets to compare with; by default those of them that are there a run was evaluated on, or else all.

    `keep`: leave computed outputs in the runs' folders. `progress` hears of images predicted and parts drawn.
    """
    require("jinja2", "matplotlib", "openTSNE")
    found = []
    for number, (facts, name) in enumerate(zip(runs, _names(runs), strict=True), 1):
        sources = Sources(facts.config, facts.classes, "test", root, skip_bad)
        there = sources.foreign_names()
        evaluated = [other for other in foreign_sets(facts.path) if other in there or other.startswith(FOLDER)]
        others = foreign or evaluated or there
        with OutputCache(facts, device, keep) as cache:
            asked = Evaluation(cache, sources, (), _of(name, progress), warn)
            found.append(gather(name, f"run-{number}-{slug(name)}", asked, others, embedding.POINTS))
    rows = [row for evidence in found for row in evidence.rows]
    alone = len(found) == 1
    if alone:
        scores = scores_section(found[0])
        head = [Section("results", "Results", scores.words, scores.tables)]
    else:
        head = [results_section(rows)]
    head.append(comparison_section(rows, [str(facts.path) for facts in runs]))
    return [*head, *(run_section(each, alone, _steps(each, progress)) for each in found), making_section(found)]


def _names(runs: Sequence[RunFacts]) -> list[str]:
    """Folder names, or whole paths where two are alike."""
    counts = Counter(facts.name for facts in runs)
    return [facts.name if counts[facts.name] == 1 else str(facts.path) for facts in runs]


def _of(run: str, progress: Progress) -> Progress:
    return lambda name, done, total: progress(f"{run}: {name}", done, total)


def _steps(evidence: Evidence, progress: Progress) -> Callable[[], None]:
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(f"{evidence.name}: drawing", done, PARTS)

    return step
