"""What a page shows of all runs together: tables of the figures, lines over data sets, and how the runs were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dsui.evaluation.results import ResultRow, versions
from dsui.report.comparison import available
from dsui.report.comparison_questions import usual_figures
from dsui.report.comparison_tables import compare_by_question
from dsui.report.figures.method_panels import ATTACKS, MISCLASSIFICATION, PAIRS, panels
from dsui.report.html_table import text_table, to_html
from dsui.report.run_data import RunResults
from dsui.report.section import FoldedTable, Section
from dsui.report.settings import settings
from dsui.runs.folder import WEIGHTS
from dsui.runs.model import short_fingerprint
from dsui.runs.weights import read_metadata

ATTACKED = "Under attack by FGSM"
LINES = (
    "A point without a bar is a single run. A line has a gap where its method has no figure; data sets have no order, "
    "so no line joins them."
)


def results_section(rows: Sequence[ResultRow]) -> Section:
    """Methods beside each other, a table for each question by the recommended score, as `dsui compare` prints them;
    attacks have plots of their own."""
    figures = [figure for figure in usual_figures(available(rows), rows) if figure.task != "fgsm"]
    if not figures:
        return Section("results", "Results", ["Nothing was evaluated but attacks."])
    found = compare_by_question(rows, figures)
    *first, last = found.tables
    tables = [to_html(table) for table in (*first, replace(last, note=" ".join(filter(None, (last.note, found.note)))))]
    if found.legend.entries:
        shared = [("all", [found.legend.shared])] if found.legend.shared else []
        lines = [*shared, *((letter, [text]) for letter, text in found.legend.entries)]
        tables.append(text_table("What the letters stand for", "letter", ["settings"], lines))
    return Section("results", "Results", tables=tables)


def comparison_section(rows: Sequence[ResultRow], attack: str) -> Section:
    """Line plots of the rows of all runs; a page without attacks shows `attack`, the command that evaluates them."""
    sections = []
    for plot, heading in (
        (MISCLASSIFICATION, "Finding errors"),
        (PAIRS, "Finding foreign images"),
        (ATTACKS, ATTACKED),
    ):
        if drawn := panels(rows, plot):
            drawings, tables = [drawing for drawing, _ in drawn], [to_html(table) for _, table in drawn]
            folded = [FoldedTable("The same as tables", "".join(tables))]
            sections.append(Section(f"comparison-{plot.name}", heading, drawings=drawings, folded_tables=folded))
    intro = [LINES] if sections else []
    if not any(section.heading == ATTACKED for section in sections):
        advice = f"No attack has been evaluated at two strengths or more; run: {attack}"
        sections.append(Section(f"comparison-{ATTACKS.name}", ATTACKED, [advice]))
    return Section("comparison", "Across data sets and attacks", intro, sections=sections)


def provenance_section(runs: Sequence[RunResults]) -> Section:
    """Settings, versions, seeds, and where the figures come from."""
    by_run = {run.name: settings(run.facts) for run in runs}
    general = {name: each.general for name, each in by_run.items()}
    mixtures = {name: each.mixture for name, each in by_run.items() if each.mixture}
    tables = [*_tables("Settings", general), *_tables("Settings of runs with mixtures", mixtures)]
    here = ", ".join(f"{name} {version}" for name, version in versions().items())
    remarks = [remark for run in runs for remark in run.remarks]
    return Section(
        "making",
        "How this page was made",
        [f"Drawn with {here}.", *remarks],
        _tables("Runs", {run.name: _provenance(run) for run in runs}),
        folded_tables=[FoldedTable("All settings", "".join(tables))],
    )


def _tables(title: str, facts: Mapping[str, Mapping[str, str]]) -> list[str]:
    """One table of the facts in which runs differ, a line for each run, and one of the facts they share."""
    keys = dict.fromkeys(key for each in facts.values() for key in each)
    values = {key: [each.get(key, "-") for each in facts.values()] for key in keys}
    shared = [(key, found[:1]) for key, found in values.items() if len(set(found)) == 1]
    differing = [key for key, found in values.items() if len(set(found)) > 1]
    tables = []
    if differing:
        lines = [(name, [each.get(key, "-") for key in differing]) for name, each in facts.items()]
        tables.append(text_table(f"{title}: what differs", "run", differing, lines, wrap=False))
    if shared:
        whose = next(iter(facts)) if len(facts) == 1 else "the same for all"
        tables.append(text_table(f"{title}: {whose}", "fact", ["value"], shared))
    return tables


def _provenance(run: RunResults) -> dict[str, str]:
    config, facts = run.facts.config, run.facts
    row = next((row for row in reversed(run.rows) if row.method == config.method), None)
    return {
        "method": config.method,
        "seed": str(config.seed),
        "classes": str(len(facts.classes)),
        "epochs": str(config.recipe.epochs),
        "trained with dsui": read_metadata(facts.path / WEIGHTS).get("version", "unknown"),
        "evaluated with": "-" if row is None else ", ".join(f"{name} {text}" for name, text in row.versions.items()),
        "evaluated on": "-" if row is None else row.device or "unknown",
        "rows read": str(run.rows_read),
        "commit": "-" if row is None or row.commit is None else row.commit[:12],
        "weights, SHA-256": short_fingerprint(facts.fingerprint()),
        "folder": facts.name,
    }
