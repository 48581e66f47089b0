"""`dsui demo`: the idea on real images that need no download."""

from __future__ import annotations

import statistics
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from dsui.experiments.digits import FOREIGN_IMAGES, Recipe, load, measure, train
from dsui.objectives import DualSupervisedLoss, Objective

HEADS: dict[str, Objective | None] = {"linear": None, "DS-UI": "bounded"}
SCORES = {"max_probability": "Max.P.", "entropy": "Ent.", "energy": "energy", "log_density": "log-density"}


class Column(NamedTuple):
    title: str
    scale: float = 100
    higher_is_better: bool = True


COLUMNS = {
    "error_auroc": Column("errors\nAUROC"),
    "error_aupr": Column("errors\nAUPR"),
    "error_aurc": Column("errors\nAURC", scale=1000, higher_is_better=False),
    "photos_auroc": Column("photos\nAUROC"),
    "noise_auroc": Column("noise\nAUROC"),
}
Runs = list[dict[str, dict[str, float]]]
"""One measurement per seed: score -> metric -> value."""


def demo(
    seeds: Annotated[int, typer.Option(min=2, help="How many runs; each draws its own 256 training images.")] = 8,
) -> None:
    """Train a small net with a DS-UI head and with a plain linear head on 256 handwritten digits and compare them.

    Everything is embedded: digits and photographs come with scikit-learn. Takes half a minute on two CPU cores.

    Example: dsui demo --seeds 4
    """
    console = Console(highlight=False)
    recipe = Recipe()
    results = run(seeds, recipe, console)
    accuracy = {head: _cell(_values(runs, "max_probability", "accuracy"), 100) for head, runs in results.items()}
    console.print(f"\nTrained on {recipe.train_images} digits, tested on {1797 - recipe.train_images}, {seeds} runs.")
    console.print("Accuracy in %: " + ", ".join(f"{head} {value}" for head, value in accuracy.items()) + "\n")
    console.print(table(results))
    console.print(
        f"Mean±deviation over {seeds} runs; the best of a column is bold. errors: wrong against right predictions; "
        f"photos, noise: {FOREIGN_IMAGES} foreign images against the test digits. AUROC, AUPR in %, higher is better; "
        "AURC in 1/1000, lower is better. A linear head has no density. The settings were chosen on these digits, with "
        "more trials for DS-UI: a demonstration, not a proof.",
        style="dim",
    )
    console.print("\n" + verdict(results))


def run(seeds: int, recipe: Recipe, console: Console) -> dict[str, Runs]:
    results: dict[str, Runs] = {head: [] for head in HEADS}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("training", total=seeds * len(HEADS) * recipe.epochs)
        for seed in range(seeds):
            images = load(seed, recipe.train_images)
            for head, objective in HEADS.items():
                progress.update(task, description=f"training run {seed + 1} of {seeds}, {head} head")
                loss = None if objective is None else DualSupervisedLoss(objective)
                model = train(images, loss, seed, recipe, before_epoch=lambda _epoch, _model: progress.advance(task))
                results[head].append(measure(model, images))
    return results


def table(results: dict[str, Runs]) -> Table:
    shown = Table(title="Does the uncertainty point at errors and at foreign images?")
    for title in ("head", "score"):
        shown.add_column(title, no_wrap=True)
    for column in COLUMNS.values():
        shown.add_column(column.title, justify="right", no_wrap=True)
    rows = [(head, score) for head, runs in results.items() for score in runs[0]]
    best = {metric: _best(rows, results, metric) for metric in COLUMNS}
    for head, score in rows:
        cells = []
        for metric, column in COLUMNS.items():
            cell = _cell(_values(results[head], score, metric), column.scale)
            cells.append(f"[bold]{cell}[/bold]" if best[metric] == (head, score) else cell)
        first, *_, last = results[head][0]
        shown.add_row(head if score == first else "", SCORES[score], *cells, end_section=score == last)
    return shown


def verdict(results: dict[str, Runs]) -> str:
    """Where DS-UI is ahead of the linear head and where it is behind, score by score."""
    losses, compared = [], 0
    for score in results["linear"][0]:
        for metric, column in COLUMNS.items():
            linear, ours = (statistics.mean(_values(results[head], score, metric)) for head in ("linear", "DS-UI"))
            compared += 1
            if (ours <= linear) if column.higher_is_better else (ours >= linear):
                losses.append(f"{column.title.replace(chr(10), ' ')} by {SCORES[score]}")
    ahead = (
        f"With the same score the DS-UI head has the better mean in {compared - len(losses)} of {compared} comparisons"
    )
    return f"{ahead}; it loses in {', '.join(losses)}." if losses else f"{ahead}."


def _best(rows: list[tuple[str, str]], results: dict[str, Runs], metric: str) -> tuple[str, str]:
    sign = 1 if COLUMNS[metric].higher_is_better else -1
    return max(rows, key=lambda row: sign * statistics.mean(_values(results[row[0]], row[1], metric)))


def _values(runs: Runs, score: str, metric: str) -> list[float]:
    return [run[score][metric] for run in runs]


def _cell(values: list[float], scale: float) -> str:
    return f"{scale * statistics.mean(values):.1f}±{scale * statistics.stdev(values):.1f}"
