"""The verdict on a run as the command line shows it before a table."""

from __future__ import annotations

import textwrap
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
    """The headline behind the name of the run, an answer with its sentence a line, the counts, and the next step.

    A line that ends in a command is not broken, so that it can be copied.
    """
    answers = [(str(each.answer), each.sentence) for each in verdict.findings]
    room = max(len(answer) for answer, _ in answers)
    console.print(_filled(f"{name}{verdict.headline}", console.width), style="bold", soft_wrap=True)
    for answer, sentence in (*answers, ("", verdict.evidence.sentence)):
        console.print(_filled(sentence, console.width, f"  {answer:{room}}  "), soft_wrap=True)
    console.print(f"Next: {verdict.next_step}.\n", soft_wrap=True)


def _filled(text: str, width: int, label: str = "") -> str:
    """Lines of at most `width` letters, the first behind `label` and the others below it."""
    from dsui.evaluation.verdict import NO_BREAK, unbroken

    lines = textwrap.wrap(
        unbroken(text),
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "\n".join(lines).replace(NO_BREAK, " ")
