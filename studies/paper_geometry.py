"""Figure 1 in numbers: DS-UI pulls the images of a class together and pushes the classes apart.

`studies.geometry` measures both; its rows are in results/geometry.jsonl, and those of other data sets in files
geometry-NAME.jsonl beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from dsui.evaluation.statistics import Summary, difference_interval, summarize
from studies.paper_verdicts import FAILS, HOLDS, NOT_RUN, Verdict

OURS, PLAIN = "bounded", "plain CE"
LABELS = {
    PLAIN: "cross-entropy alone",
    OURS: "DS-UI",
    "sgvb": "pull without push (SGVB)",
}
WANTED = ("digits", "cifar10")
QUANTITIES = {"within": "within a class", "between": "between class means"}
Measured = dict[str, dict[str, dict[str, Summary]]]
"""By data set, variant and quantity."""


class GeometryCheck(NamedTuple):
    claim: str
    verdict: str


def read_geometry(results: Path) -> Measured:
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for path in sorted(results.glob("geometry*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            of = values.setdefault(row["data"], {}).setdefault(row["variant"], {})
            for quantity in QUANTITIES:
                of.setdefault(quantity, []).append(row[quantity])
            of.setdefault("ratio", []).append(row["within"] / row["between"])
    return {
        data: {variant: {name: summarize(runs) for name, runs in of.items()} for variant, of in variants.items()}
        for data, variants in values.items()
    }


def check_geometry(results: Path) -> GeometryCheck:
    """The claim fails on a data set where DS-UI's classes are wider, or nearer to each other, than those of softmax."""
    claim = "classes are tighter and farther apart than with cross-entropy alone"
    measured = {data: of for data, of in read_geometry(results).items() if {OURS, PLAIN} <= of.keys()}
    waiting = [data for data in WANTED if data not in measured]
    parts, failed = list[str](), list[bool]()
    for data, of in measured.items():
        within, between = (_difference(of[OURS][name], of[PLAIN][name]) for name in QUANTITIES)
        failed.append(
            of[OURS]["within"].mean >= of[PLAIN]["within"].mean or of[OURS]["between"].mean <= of[PLAIN]["between"].mean
        )
        parts.append(f"on {data} distances differ by {within} within a class and {between} between class means")
    word = FAILS if any(failed) else f"{NOT_RUN}: {len(waiting)} of {len(WANTED)} data sets" if waiting else HOLDS
    parts += [f"not run on {', '.join(waiting)} yet"] if waiting else []
    return GeometryCheck(claim, Verdict(word, "; ".join(parts)).text)


def geometry_table(results: Path) -> str:
    names = (*QUANTITIES, "ratio")
    header = " | ".join((*QUANTITIES.values(), "ratio"))
    lines = [f"| data | trained with | runs | {header} |", "|---|---|---:|---:|---:|---:|"]
    for data, variants in read_geometry(results).items():
        for variant, of in variants.items():
            cells = " | ".join(f"{of[name].mean:.3f} ± {of[name].deviation or 0:.3f}" for name in names)
            lines.append(f"| {data} | {LABELS.get(variant, variant)} | {of['within'].runs} | {cells} |")
    return "\n".join(lines)


def _difference(first: Summary, second: Summary) -> str:
    interval = difference_interval(first, second)
    between = "" if interval is None else f" ({interval.low:+.3f} to {interval.high:+.3f})"
    return f"{first.mean - second.mean:+.3f}{between}"
