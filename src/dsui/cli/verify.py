"""`dsui verify`: does this installation give the figures that are shipped with dsui?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli.arguments import Device, select_device
from dsui.cli.errors import UsageError
from dsui.cli.json_output import print_json
from dsui.cli.plain_arguments import Json, Quiet
from dsui.cli.terminal import print_line, stderr_console, stdout_console
from dsui.errors import DsuiError

if TYPE_CHECKING:
    from rich.table import Table

    from dsui.evaluation.results import ResultRow
    from dsui.experiments.verification import Check

TASK_TITLES = {"misclassification": "errors", "ood": "photos", "noise": "noise"}


def verify(
    faults: Annotated[
        bool, typer.Option("--faults", help="Cause faults instead, such as a kill or a wrong byte, and watch.")
    ] = False,
    device: Device = "cpu",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check this installation with a small experiment.

    Trains the baseline and DS-UI on embedded digits with three seeds each and compares the figures with those shipped
    with dsui; this takes about ten seconds on a CPU. The exit status is 1 if a figure differs by more than chance
    explains.

    With --faults it kills a training and resumes it, damages and forges files in a temporary folder, and says for
    each promise of dsui whether it held; the exit status is 1 if one did not.

    Example: dsui verify --faults
    """
    if faults:
        _verify_faults(device, as_json, quiet)
        return
    import torch

    from dsui.cli.progress import ProgressBars
    from dsui.experiments import verification
    from dsui.experiments.cell_run import RunContext
    from dsui.training.reporter import SilentReporter

    grid, shipped = verification.shipped_grid(verification.SEEDS), verification.shipped_rows()
    torch_device = select_device(device)
    torch.set_num_threads(1)  # several threads are slower for so small a network, and round differently
    with ProgressBars(stderr_console(quiet)) as bars:
        context = RunContext(
            root=None, device=torch_device, keep_outputs=False, reporter=SilentReporter(), warn=bars.note
        )
        rows = verification.run_experiment(grid, context, bars.update)
    checks = verification.compare_with_shipped(rows, shipped)
    verified = all(check.verdict in ("equal", "alike") for check in checks)
    if as_json:
        print_json(_json_content(checks, rows, shipped, verified))
    elif not quiet:
        console = stdout_console()
        console.print(_checks_table(checks))
        console.print(f"\n{_table_caption(checks)}", style="dim")
    if not verified:
        raise DsuiError(_failure_message(checks, rows, shipped))
    if not (as_json or quiet):
        print_line(_success_message(checks))


def _verify_faults(device: str, as_json: bool, quiet: bool) -> None:
    if device != "cpu":
        raise UsageError("--faults works on the CPU alone; leave out --device.")

    from dsui.cli.progress import ProgressBars
    from dsui.experiments import faults

    with ProgressBars(stderr_console(quiet)) as bars:
        findings = faults.find(bars.update)
    broken = [finding for finding in findings if not finding.held]
    if as_json:
        print_json({"held": not broken, "checks": [asdict(finding) for finding in findings]})
    elif not quiet:
        for finding in findings:
            kept, broken_by = f"held      {finding.promise}", f"NOT HELD  {finding.promise}: {finding.happened}"
            print_line(kept if finding.held else broken_by)
    if broken:
        names = "; ".join(finding.promise for finding in broken)
        raise DsuiError(
            f"{len(broken)} of {len(findings)} promises did not hold here ({names}); report this with the output of "
            "`dsui info`."
        )
    if not (as_json or quiet):
        print_line(f"verified: all {len(findings)} promises held.")


def _checks_table(checks: Sequence[Check]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("\nfigure", no_wrap=True)
    for title in ("\nhere", "same\nshipped", f"{checks[0].shipped.runs} runs\nshipped", "\nmay be"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("\nverdict", no_wrap=True)
    for method, group in groupby(checks, lambda check: check.method):
        table.add_row(method)
        for check in group:
            table.add_row(f"  {_figure_name(check)}", *_format_numbers(check), check.verdict)
    return table


def _figure_name(check: Check) -> str:
    from dsui.report.columns import SCORES
    from dsui.report.metric_formats import METRICS

    if check.figure.task == "accuracy":
        stream = "density " if check.figure.score == "density" else ""
        return f"{stream}{METRICS[check.figure.metric].title}"
    return f"{TASK_TITLES[check.figure.task]}, {SCORES.get(check.figure.score or '', check.figure.score)}"


def _format_numbers(check: Check) -> list[str]:
    from statistics import mean

    percent, shipped = check.figure.metric != "nll", check.shipped

    def shown(value: float) -> str:
        return f"{100 * value:.2f}" if percent else f"{value:.3f}"

    here = "-" if check.verdict == "missing" else shown(mean(check.here))
    spread = f"{shown(shipped.mean)} ± {shown(shipped.deviation or 0.0)}"
    return [here, shown(mean(check.same_seeds)), spread, f"{shown(check.low)}-{shown(check.high)}"]


def _table_caption(checks: Sequence[Check]) -> str:
    from dsui.experiments.verification import EQUAL, FALSE_ALARMS

    return (
        f"Means over {len(checks[0].same_seeds)} seeds, here and shipped; in %, NLL in nats. errors, photos, noise: "
        f"AUROC of detecting them with a score. equal: every seed as shipped, to {EQUAL}; alike: the mean lies within "
        f"the bounds of a t-test ({FALSE_ALARMS:.1%}, corrected for {len(checks)} figures)."
    )


def _success_message(checks: Sequence[Check]) -> str:
    equal = Counter(check.verdict for check in checks)["equal"]
    if equal == len(checks):
        return f"verified: all {equal} figures equal the shipped ones."
    return (
        f"verified: {equal} of {len(checks)} figures equal the shipped ones and the others lie within chance, as is "
        "usual on another processor, number of threads or version of PyTorch."
    )


def _failure_message(checks: Sequence[Check], rows: Sequence[ResultRow], shipped: Sequence[ResultRow]) -> str:
    wrong = [check for check in checks if check.verdict in ("differs", "missing")]
    names = "; ".join(f"{check.method} {_figure_name(check)}" for check in wrong)
    theirs, ours = (", ".join(f"{name} {text}" for name, text in some[0].versions.items()) for some in (shipped, rows))
    versions = f"shipped and here alike: {ours}" if theirs == ours else f"shipped with {theirs}; here {ours}"
    return (
        f"not verified: {len(wrong)} of {len(checks)} figures differ from the shipped ones by more than chance "
        f"explains ({names}). Either the source or the packages were changed, or one of them does not work here "
        f"({versions}); install dsui again with the versions in its constraints.txt, and if that does not help, "
        "report it with the output of `dsui info`."
    )


def _json_content(
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
                "same_seeds_shipped": check.same_seeds,
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
