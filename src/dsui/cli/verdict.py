"""The verdict on a run as the command line shows it before a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from dsui.evaluation.verdict import Verdict
    from dsui.runs.model import RunFacts


def verdict_of_rows(run: RunFacts, results: Path, part: str) -> Verdict | None:
    """By the rows of a results file that are of `part`, the test or the held-out images; None where none is."""
    from dsui.evaluation.results import read
    from dsui.evaluation.verdict import judge
    from dsui.evaluation.verdict_facts import facts_of_rows

    facts = facts_of_rows(run, read([results])[0], part)
    return None if facts is None else judge(facts)


def print_verdict(console: Console, verdict: Verdict, name: str = "") -> None:
    """The headline behind the name of the run, an answer with its sentence a line, the counts, and the next step."""
    from rich.table import Table

    answers = Table.grid(padding=(0, 2))
    for each in verdict.findings:
        answers.add_row(f"  {each.answer}", each.sentence)
    answers.add_row("", verdict.evidence.sentence)
    console.print(f"{name}{verdict.headline}", style="bold")
    console.print(answers)
    console.print(f"Next: {verdict.next_step}.\n", soft_wrap=True)
