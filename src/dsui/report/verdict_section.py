"""How a page opens: for each run whether to use it, why, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from dsui.evaluation.verdict import Verdict, judge
from dsui.evaluation.verdict_facts import facts_of_rows
from dsui.report.html_table import text_table
from dsui.report.run_data import RunResults
from dsui.report.section import FoldedTable, Section

NOT_EVALUATED = "This run was not evaluated, so nothing is known of it. Next: dsui evaluate {}."
EVIDENCE = "Are there enough images?"


def verdict_section(runs: Sequence[RunResults]) -> Section:
    """A single run's verdict with its answers; of several runs a line each, their answers folded."""
    found = {run.name: _verdict(run) for run in runs}
    section = Section("verdict", "Verdict")
    if len(runs) == 1:
        ((name, verdict),) = found.items()
        section.paragraphs.extend([verdict.headline, _next(verdict)] if verdict else [_unknown(runs[0])])
        section.tables.extend([_answers(name, verdict)] if verdict else [])
        return section
    lines = [
        (run.name, [verdict.headline, verdict.next_step] if verdict else [_unknown(run), "evaluate it"])
        for run, verdict in zip(runs, found.values(), strict=True)
    ]
    section.tables.append(text_table("Whether to use each run", "run", ["verdict", "next step"], lines))
    answers = [_answers(name, verdict) for name, verdict in found.items() if verdict]
    section.folded_tables.append(FoldedTable("The answers behind the verdicts", "".join(answers)))
    return section


def _verdict(run: RunResults) -> Verdict | None:
    facts = facts_of_rows(run.facts, run.rows)
    return None if facts is None else judge(facts)


def _answers(name: str, verdict: Verdict) -> str:
    lines = [(str(each.question), [str(each.answer), each.sentence]) for each in verdict.findings]
    enough = "yes" if verdict.evidence.enough else "no"
    lines.append((EVIDENCE, [enough, verdict.evidence.sentence]))
    return text_table(f"{name}: the answers", "question", ["answer", "what was measured"], lines)


def _next(verdict: Verdict) -> str:
    return f"Next: {verdict.next_step}."


def _unknown(run: RunResults) -> str:
    return NOT_EVALUATED.format(run.facts.path)
