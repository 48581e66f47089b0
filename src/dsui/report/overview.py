"""What a page says of all runs together: tables of the figures, lines over data sets, and how everything was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from dsui.evaluation.results import ResultRow, versions
from dsui.report.columns import Figure, shared_parts
from dsui.report.comparison import available, compare
from dsui.report.evidence import Record
from dsui.report.figures.lines import ATTACKS, MISCLASSIFICATION, PAIRS, panels
from dsui.report.html_table import to_html, words_table
from dsui.report.section import Details, Section
from dsui.report.settings import settings
from dsui.runs.folder import WEIGHTS
from dsui.runs.model import short_fingerprint
from dsui.runs.weights import read_metadata

SCORES = ("max_probability", "entropy", "uncertainty", "prediction")
METRICS = {
    "accuracy": ("accuracy",),
    "misclassification": ("auroc", "aupr"),
    "ood": ("auroc",),
    "open-set": ("auroc",),
    "noise": ("auroc",),
}
"""The headline figures of each task; all others stand with the runs, and attacks have a figure of their own."""
WIDEST = 7
"""Columns of a table with deviations and marks that fit a printed page."""
TABLES = {
    "Accuracy, and finding errors by their uncertainty": ("accuracy", "misclassification"),
    "Finding foreign images by their uncertainty": ("ood", "open-set", "noise"),
}
ATTACKED = "Under attack by FGSM"
LINES = (
    "Points are means over a method's runs, bars their deviations. DS-UI is dashed, and a line has a gap where its "
    "method has no figure."
)


def results_section(rows: Sequence[ResultRow]) -> Section:
    """Methods beside each other, with deviations over runs and marks of significance."""
    tables = []
    for title, tasks in TABLES.items():
        figures = [figure for figure in available(rows) if figure.task in tasks and _headline(figure)]
        for part in _parts(figures):
            pairs = zip(shared_parts(part), shared_parts(figures), strict=True)
            own = [text for text, of_all in pairs if text and of_all is None]
            named = ": ".join(filter(None, (title, ", ".join(own))))
            tables.append(to_html(compare(rows, part, title=named)))
    return Section("results", "Results", tables=tables)


def _parts(figures: Sequence[Figure]) -> list[list[Figure]]:
    """As many as fit a sheet of paper, those of one question together."""
    parts: list[list[Figure]] = []
    for _, group in groupby(figures, lambda figure: (figure.data, figure.backbone, figure.task, figure.foreign)):
        own = list(group)
        if parts and len(parts[-1]) + len(own) <= WIDEST:
            parts[-1].extend(own)
        else:
            parts.append(own)
    return parts


def comparison_section(rows: Sequence[ResultRow], attack: str) -> Section:
    """Lines from the rows of all runs; `attack` is the command that attacks them, for a page without attacks."""
    sections = []
    for question, heading in (
        (MISCLASSIFICATION, "Finding errors"),
        (PAIRS, "Finding foreign images"),
        (ATTACKS, ATTACKED),
    ):
        if drawn := panels(rows, question):
            drawings, tables = [drawing for drawing, _ in drawn], [to_html(table) for _, table in drawn]
            details = [Details("The same as tables", "".join(tables))]
            sections.append(Section(f"comparison-{question.name}", heading, drawings=drawings, details=details))
    intro = [LINES] if sections else []
    if not any(section.heading == ATTACKED for section in sections):
        words = f"No attack has been evaluated at two strengths or more; run: {attack}"
        sections.append(Section(f"comparison-{ATTACKS.name}", ATTACKED, [words]))
    return Section("comparison", "Across data sets and attacks", intro, sections=sections)


def making_section(records: Sequence[Record]) -> Section:
    """Settings, versions, seeds, and where the figures come from."""
    told = {each.name: settings(each.facts) for each in records}
    general = {name: each.general for name, each in told.items()}
    mixtures = {name: each.mixture for name, each in told.items() if each.mixture}
    tables = [*_tables("Settings", general), *_tables("Settings of runs with mixtures", mixtures)]
    here = ", ".join(f"{name} {version}" for name, version in versions().items())
    remarks = [remark for each in records for remark in each.remarks]
    return Section(
        "making",
        "How this page was made",
        [f"Drawn with {here}.", *remarks],
        _tables("Runs", {each.name: _made(each) for each in records}),
        details=[Details("All settings", "".join(tables))],
    )


def _tables(title: str, facts: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What runs differ in, a line for each by its name, and what they share."""
    keys = dict.fromkeys(key for each in facts.values() for key in each)
    values = {key: [each.get(key, "-") for each in facts.values()] for key in keys}
    shared = [(key, found[:1]) for key, found in values.items() if len(set(found)) == 1]
    differing = [key for key, found in values.items() if len(set(found)) > 1]
    tables = []
    if differing:
        lines = [(name, [each.get(key, "-") for key in differing]) for name, each in facts.items()]
        tables.append(words_table(f"{title}: what differs", "run", differing, lines, wrap=False))
    if shared:
        whose = next(iter(facts)) if len(facts) == 1 else "the same for all"
        tables.append(words_table(f"{title}: {whose}", "fact", ["value"], shared))
    return tables


def _headline(figure: Figure) -> bool:
    return figure.metric in METRICS.get(figure.task, ()) and figure.score in SCORES


def _made(record: Record) -> dict[str, str]:
    config, facts = record.facts.config, record.facts
    row = next((row for row in reversed(record.rows) if row.method == config.method), None)
    return {
        "method": config.method,
        "seed": str(config.seed),
        "classes": str(len(facts.classes)),
        "epochs": str(config.recipe.epochs),
        "trained with dsui": read_metadata(facts.path / WEIGHTS).get("version", "unknown"),
        "evaluated with": "-" if row is None else ", ".join(f"{name} {text}" for name, text in row.versions.items()),
        "evaluated on": "-" if row is None else row.device or "unknown",
        "rows read": str(record.rows_read),
        "commit": "-" if row is None or row.commit is None else row.commit[:12],
        "weights, SHA-256": short_fingerprint(facts.fingerprint()),
        "folder": facts.name,
    }
