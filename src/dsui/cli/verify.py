"""`dsui verify`: does this installation give the figures that dsui was shipped with?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import typer

from dsui.cli import documents
from dsui.cli.options import Device, Json, Quiet
from dsui.errors import DsuiError

if TYPE_CHECKING:
    from rich.table import Table

    from dsui.evaluation.results import ResultRow
    from dsui.experiments.verification import Check

POSITIVES = {"misclassification": "errors", "ood": "photos", "noise": "noise"}


def verify(device: Device = "cpu", as_json: Json = False, quiet: Quiet = False) -> None:
    """Run a small shipped experiment again and compare the figures.

    Trains the baseline and DS-UI on embedded digits with three seeds each, in about ten seconds on a CPU. The exit
    status is 1 where a figure lies farther from the shipped ones than chance explains.

    Example: dsui verify
    """
    import torch

    from dsui.cli.bars import Bars, notes
    from dsui.cli.device import command_device
    from dsui.experiments import verification
    from dsui.experiments.cell_run import Conditions
    from dsui.training.loop import SilentReporter

    grid, shipped, done = verification.experiment(verification.SEEDS), verification.shipped_rows(), 0
    place = command_device(device)
    torch.set_num_threads(1)  # for so small a net more of them wait for each other, and round otherwise
    with Bars(notes(quiet)) as bars:

        def told(_cell: object) -> None:
            nonlocal done
            done += 1
            bars.show("training and evaluating runs", done, len(grid.cells))

        bars.show("training and evaluating runs", 0, len(grid.cells))
        conditions = Conditions(None, place, False, SilentReporter(), warn=bars.say)
        rows = verification.run(grid, conditions, told)
    checks = verification.checks(rows, shipped)
    verified = all(check.verdict in ("equal", "alike") for check in checks)
    if as_json:
        documents.show(_content(checks, rows, shipped, verified))
    elif not quiet:
        from rich.console import Console

        console = Console(highlight=False)
        console.print(_table(checks))
        console.print(f"\n{_caption(checks)}", style="dim")
    if not verified:
        raise DsuiError(_differing(checks, rows, shipped))
    if not (as_json or quiet):
        typer.echo(_verified(checks))


def _table(checks: Sequence[Check]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("\nfigure", no_wrap=True)
    for title in ("\nhere", "same\nshipped", f"{checks[0].shipped.runs} runs\nshipped", "\nmay be"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("\nverdict", no_wrap=True)
    for method, group in groupby(checks, lambda check: check.method):
        table.add_row(method)
        for check in group:
            table.add_row(f"  {_name(check)}", *_numbers(check), check.verdict)
    return table


def _name(check: Check) -> str:
    from dsui.report.columns import METRICS, SCORES

    if check.figure.task == "accuracy":
        stream = "density " if check.figure.score == "density" else ""
        return f"{stream}{METRICS[check.figure.metric].title}"
    return f"{POSITIVES[check.figure.task]}, {SCORES.get(check.figure.score or '', check.figure.score)}"


def _numbers(check: Check) -> list[str]:
    from statistics import mean

    percent, shipped = check.figure.metric != "nll", check.shipped

    def shown(value: float) -> str:
        return f"{100 * value:.2f}" if percent else f"{value:.3f}"

    here = "-" if check.verdict == "missing" else shown(mean(check.here))
    spread = f"{shown(shipped.mean)} ± {shown(shipped.deviation or 0.0)}"
    return [here, shown(mean(check.then)), spread, f"{shown(check.low)}-{shown(check.high)}"]


def _caption(checks: Sequence[Check]) -> str:
    from dsui.experiments.verification import EQUAL, FALSE_ALARMS

    return (
        f"Means over {len(checks[0].then)} seeds, here and the same shipped; in %, NLL in nats. errors, photos, "
        f"noise: AUROC of finding them, by a score. equal: every seed as shipped, to {EQUAL}; alike: the mean is what "
        f"it may be by a t-test ({FALSE_ALARMS:.1%}, corrected for {len(checks)} figures)."
    )


def _verified(checks: Sequence[Check]) -> str:
    equal = Counter(check.verdict for check in checks)["equal"]
    if equal == len(checks):
        return f"verified: all {equal} figures equal the shipped ones."
    return (
        f"verified: {equal} of {len(checks)} figures equal the shipped ones and the others lie within chance, as is "
        "usual on another processor, number of threads or version of PyTorch."
    )


def _differing(checks: Sequence[Check], rows: Sequence[ResultRow], shipped: Sequence[ResultRow]) -> str:
    wrong = [check for check in checks if check.verdict in ("differs", "missing")]
    names = "; ".join(f"{check.method} {_name(check)}" for check in wrong)
    then, now = (", ".join(f"{name} {text}" for name, text in some[0].versions.items()) for some in (shipped, rows))
    versions = f"shipped and here alike: {now}" if then == now else f"shipped with {then}; here {now}"
    return (
        f"not verified: {len(wrong)} of {len(checks)} figures differ from the shipped ones by more than chance "
        f"explains ({names}). Either source or packages were changed, or one does not work here ({versions}); "
        "install dsui anew with the versions in its constraints.txt, and if that does not help, report it with the "
        "output of `dsui info`."
    )


def _content(
    checks: Sequence[Check], rows: Sequence[ResultRow], shipped: Sequence[ResultRow], verified: bool
) -> dict[str, object]:
    return {
        "verified": verified,
        "versions": rows[0].versions,
        "shipped_versions": shipped[0].versions,
        "checks": [
            {
                "method": check.method,
                **{key: getattr(check.figure, key) for key in ("task", "foreign", "score", "metric")},
                "here": check.here,
                "same_seeds_shipped": check.then,
                "shipped_mean": check.shipped.mean,
                "shipped_deviation": check.shipped.deviation,
                "shipped_runs": check.shipped.runs,
                "low": check.low,
                "high": check.high,
                "verdict": check.verdict,
            }
            for check in checks
        ],
    }
