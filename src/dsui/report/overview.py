"""What a page says of all runs together: tables of the figures, lines over data sets, and how everything was made."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dsui.evaluation.results import Row, versions
from dsui.report.comparison import Figure, available, compare
from dsui.report.evidence import Evidence
from dsui.report.figures.lines import ATTACKS, MISCLASSIFICATION, PAIRS, panels
from dsui.report.html_table import settings_table, to_html
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
TABLES = {
    "Accuracy, and finding errors by their uncertainty": ("accuracy", "misclassification"),
    "Finding foreign images by their uncertainty": ("ood", "open-set", "noise"),
}


def results_section(rows: Sequence[Row]) -> Section:
    """Methods beside each other, with deviations over runs and marks of significance."""
    tables = []
    for title, tasks in TABLES.items():
        if figures := [figure for figure in available(rows) if figure.task in tasks and _headline(figure)]:
            tables.append(to_html(compare(rows, figures, title=title)))
    return Section("results", "Results", tables=tables)


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


def making_section(evidence: Sequence[Evidence]) -> Section:
    """Settings, versions, seeds, and where the figures come from."""
    runs = [each.name for each in evidence]
    settings = [{key: _word(value) for key, value in each.facts.config.mapping().items()} for each in evidence]
    keys = dict.fromkeys(key for mapping in settings for key in mapping)
    lines = [(key, [mapping.get(key, "-") for mapping in settings]) for key in keys]
    made = [_made(each) for each in evidence]
    origins = [(key, [mapping[key] for mapping in made]) for key in made[0]]
    here = ", ".join(f"{name} {version}" for name, version in versions().items())
    remarks = [remark for each in evidence for remark in each.remarks]
    return Section(
        "making",
        "How this page was made",
        [f"Drawn with {here}.", *remarks],
        [settings_table("Runs; bold where they differ", "fact", runs, origins)],
        details=[Details("All settings", settings_table("Settings; bold where runs differ", "setting", runs, lines))],
    )


def _headline(figure: Figure) -> bool:
    return figure.metric in METRICS.get(figure.task, ()) and figure.score in SCORES


def _made(evidence: Evidence) -> dict[str, str]:
    config, facts = evidence.facts.config, evidence.facts
    row = next((row for row in reversed(evidence.rows) if row.method == config.method), None)
    return {
        "seed": str(config.seed),
        "classes": str(len(facts.classes)),
        "epochs": str(config.recipe.epochs),
        "trained with dsui": read_metadata(facts.path / WEIGHTS).get("version", "unknown"),
        "evaluated with": "-" if row is None else ", ".join(f"{name} {text}" for name, text in row.versions.items()),
        "evaluated on": "-" if row is None else row.device or "unknown",
        "rows read": str(evidence.rows_read),
        "commit": "-" if row is None or row.commit is None else row.commit[:12],
        "weights, SHA-256": facts.fingerprint()[:16],
    }


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
