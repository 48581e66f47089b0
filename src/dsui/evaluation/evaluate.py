"""Evaluate a trained run: from its folder to scores and results rows.

rows = evaluate("runs/dsui-0", ["misclassification", "ood"], ["photos"], detectors=["knn"])

with open_evaluation("runs/dsui-0") as evaluation:
    stored, scores = evaluation.scores(evaluation.sources.own())
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch

from dsui.data.registry import PSEUDO, check_present
from dsui.device import choose_device
from dsui.evaluation import TASKS
from dsui.evaluation.cache import OutputCache
from dsui.evaluation.results import ResultRow
from dsui.evaluation.sources import ImageSources, Part
from dsui.evaluation.tasks import EPSILONS, Evaluation
from dsui.progress import Progress, silent
from dsui.runs.embedding import embedder_of
from dsui.runs.model import RunFacts, run_facts


def open_evaluation(
    run: RunFacts | Path | str,
    device: torch.device | str = "auto",
    *,
    detectors: Sequence[str] = (),
    part: Part = "test",
    root: Path | None = None,
    skip_bad: bool = False,
    keep_outputs: bool = True,
    progress: Progress = silent,
    warn: Callable[[str], None] = lambda _sentence: None,
) -> Evaluation:
    """The evaluation of a run, to be used in a `with` block.

    `run` is its folder, or what `run_facts` says of it. `part` are the in-domain images, `root` is where data sets lie,
    `skip_bad` leaves out unreadable files, `keep_outputs` leaves outputs in the run's folder for the next evaluation.
    """
    facts = run if isinstance(run, RunFacts) else run_facts(Path(run))
    chosen = choose_device(device)
    embedder = None if facts.embedding is None else cache(lambda: embedder_of(facts, chosen))
    sources = ImageSources(
        facts.config, facts.classes, part, root, skip_bad, facts.images, embedder=embedder, progress=progress
    )
    for sentence in facts.notes:
        warn(sentence)
    return Evaluation(OutputCache(facts, chosen, keep_outputs, warn), sources, detectors, progress, warn)


def evaluate(
    run: RunFacts | Path | str,
    tasks: Sequence[str] | None = None,
    foreign: Sequence[str] | None = None,
    epsilons: Sequence[float] = EPSILONS,
    device: torch.device | str = "auto",
    *,
    attacks: bool = True,
    detectors: Sequence[str] = (),
    part: Part = "test",
    root: Path | None = None,
    skip_bad: bool = False,
    keep_outputs: bool = True,
    progress: Progress = silent,
    warn: Callable[[str], None] = lambda _sentence: None,
) -> list[ResultRow]:
    """The results rows of a run.

    `tasks` None means all that apply to the run, without `attacks` all but FGSM; `foreign` None means every foreign set
    that is present. The other settings are those of `open_evaluation`. A foreign set that is missing is reported before
    any work is done.
    """
    with open_evaluation(
        run,
        device,
        detectors=detectors,
        part=part,
        root=root,
        skip_bad=skip_bad,
        keep_outputs=keep_outputs,
        progress=progress,
        warn=warn,
    ) as evaluation:
        sources = evaluation.sources
        foreign_sets = sources.foreign_names() if foreign is None else foreign
        for name in foreign_sets:
            sources.foreign(name)
            if name not in PSEUDO:
                check_present(name, root)
        if tasks is None:
            known, on_features = sources.config.known, sources.config.on_features
            applies = {"open-set": known is not None, "ood": bool(foreign_sets), "fgsm": attacks and not on_features}
            if attacks and on_features:
                warn("fgsm attacks pixels, and this run was trained on features, so it is left out.")
            tasks = [task for task in TASKS if applies.get(task, True)]
        return evaluation.evaluate(tasks, foreign_sets, epsilons)
