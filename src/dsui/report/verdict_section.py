"""How a page opens: for each run that it shows in full, whether to use it, why, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from dsui.evaluation.verdict import Verdict, judge, unbroken
from dsui.evaluation.verdict_facts import facts_of_rows
from dsui.report.html_table import text_table
from dsui.report.run_data import RunData
from dsui.report.section import FoldedTable, Section

EVIDENCE = "Are there enough images?"


def verdict_section(runs: Sequence[RunData]) -> Section:
    """A single run's verdict with its answers; of several runs a line each, and their answers folded."""
    verdicts = {run.name: _verdict(run) for run in runs}
    answers = [_answers(name, verdict) for name, verdict in verdicts.items()]
    if len(runs) == 1:
        (verdict,) = verdicts.values()
        return Section("verdict", "Verdict", [unbroken(verdict.headline), f"Next: {verdict.next_step}."], answers)
    lines = [(name, [unbroken(verdict.headline), verdict.next_step]) for name, verdict in verdicts.items()]
    summary = text_table("Whether to use each run", "run", ["verdict", "next step"], lines)
    folded = [FoldedTable("The answers behind the verdicts", "".join(answers))]
    return Section("verdict", "Verdict", tables=[summary], folded_tables=folded)


def _verdict(run: RunData) -> Verdict:
    facts = facts_of_rows(run.facts, run.rows)
    assert facts is not None, "a page computes the rows that a run does not have"
    return judge(facts)


def _answers(name: str, verdict: Verdict) -> str:
    lines = [(str(each.question), [str(each.answer), unbroken(each.sentence)]) for each in verdict.findings]
    enough = "yes" if verdict.evidence.enough else "no"
    lines.append((EVIDENCE, [enough, unbroken(verdict.evidence.sentence)]))
    return text_table(f"{name}: the answers", "question", ["answer", "what was measured"], lines)
