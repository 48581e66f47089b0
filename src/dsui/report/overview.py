"""What a page says of all runs together: tables of the figures, lines over data sets, and how everything was made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby

from dsui.evaluation.model import short_fingerprint
from dsui.evaluation.results import Row, versions
from dsui.report.columns import Figure, common
from dsui.report.comparison import available, compare
from dsui.report.evidence import Record
from dsui.report.figures.lines import ATTACKS, MISCLASSIFICATION, PAIRS, panels
from dsui.report.html_table import to_html, words_table
from dsui.report.section import Details, Section
from dsui.training.run_folder import WEIGHTS
from dsui.training.weights import read_metadata

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


def results_section(rows: Sequence[Row]) -> Section:
    """Methods beside each other, with deviations over runs and marks of significance."""
    tables = []
    for title, tasks in TABLES.items():
        figures = [figure for figure in available(rows) if figure.task in tasks and _headline(figure)]
        for part in _parts(figures):
            own = [word for word, of_all in zip(common(part), common(figures), strict=True) if word and of_all is None]
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


def comparison_section(rows: Sequence[Row], runs: Sequence[str]) -> Section:
    """The paper's Figures 3, 5 and 6 from the rows of all runs."""
    sections = []
    for question, heading in (
        (MISCLASSIFICATION, "Finding errors (the paper's Figure\N{NO-BREAK SPACE}3)"),
        (PAIRS, "Finding foreign images (Figure\N{NO-BREAK SPACE}5)"),
        (ATTACKS, "Under attack by FGSM (Figure\N{NO-BREAK SPACE}6)"),
    ):
        if drawn := panels(rows, question):
            drawings, tables = [drawing for drawing, _ in drawn], [to_html(table) for _, table in drawn]
            details = [Details("The same as tables", "".join(tables))]
            sections.append(Section(f"comparison-{question.name}", heading, drawings=drawings, details=details))
    if not any(row.task == "fgsm" for row in rows):
        words = f"No attack has been evaluated; run: dsui evaluate {' '.join(runs)} --tasks fgsm"
        sections.append(Section("comparison-fgsm", "Under attack by FGSM (Figure\N{NO-BREAK SPACE}6)", [words]))
    intro = ["Points are means over a method's runs, bars their deviations; DS-UI is dashed, as in the paper."]
    return Section("comparison", "Across data sets and attacks", intro, sections=sections)


def making_section(records: Sequence[Record]) -> Section:
    """Settings, versions, seeds, and where the figures come from."""
    names = [each.name for each in records]
    settings = [{key: _word(value) for key, value in each.facts.config.mapping().items()} for each in records]
    here = ", ".join(f"{name} {version}" for name, version in versions().items())
    remarks = [remark for each in records for remark in each.remarks]
    return Section(
        "making",
        "How this page was made",
        [f"Drawn with {here}.", *remarks],
        _tables("Runs", names, [_made(each) for each in records]),
        details=[Details("All settings", "".join(_tables("Settings", names, settings)))],
    )


def _tables(title: str, names: Sequence[str], facts: Sequence[Mapping[str, str]]) -> list[str]:
    """What runs differ in, a line for each, and what they share."""
    keys = dict.fromkeys(key for each in facts for key in each)
    values = {key: [each.get(key, "-") for each in facts] for key in keys}
    shared = [(key, found[:1]) for key, found in values.items() if len(set(found)) == 1]
    differing = [key for key, found in values.items() if len(set(found)) > 1]
    tables = []
    if differing:
        lines = [(name, [each.get(key, "-") for key in differing]) for name, each in zip(names, facts, strict=True)]
        tables.append(words_table(f"{title}: what differs", "run", differing, lines, wrap=False))
    if shared:
        whose = names[0] if len(names) == 1 else "the same for all"
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


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
