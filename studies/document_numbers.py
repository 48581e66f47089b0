"""A measured number in a sentence, quoted from committed rows.

A page names its sources once, with the keys of `studies.document_rows`:

    <!-- sources:
    parts: {file: [cifar10-parts, cifar10-resnet18-paper], grid: cifar10-parts, where: {seed: [0, 1, 2]}}
    -->

A comment behind a number says which figure it is, as SOURCE; LINE; TASK FOREIGN; SCORE; METRIC:

    an AURC of 7.33<!-- = parts; linear head on the sphere; misclassification; max_probability; aurc -->

The number is the mean over the runs of the line, in the unit of the tables and with as many decimals as stand there.
"93.15 ± 0.33" is mean and deviation. For LINE, `A - B` is the difference of the means of two lines and `A / B` their
ratio. FOREIGN is left out where a task has none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import yaml

from dsui.evaluation.statistics import Summary
from dsui.report.columns import figure_of
from dsui.report.comparison_lines import latest_rows, line_labels, own_summaries, without_partial_runs
from dsui.report.metric_formats import METRICS
from studies.document_rows import RowSource

SOURCES = re.compile(r"^<!-- sources:\n(?P<sources>.*?)^-->$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(
    r"(?P<mean>-?\d[\d,]*(?:\.\d+)?)(?: ± (?P<deviation>\d+(?:\.\d+)?))?<!--\s+=\s(?P<figure>.*?)-->", re.DOTALL
)
OPENED = re.compile(r"<!--\s+=\s")
Key = tuple[str, str, str | None, str]
"""Line, task with foreign set, score, metric."""


class NumberReader:
    """Reads each source once; `results` is the folder of the rows."""

    def __init__(self, results: Path) -> None:
        self._summaries = cache(partial(_summaries, results))

    def replace(self, text: str) -> str:
        """The page with every quoted number as the rows have it."""
        if len(QUOTED.findall(text)) != len(OPENED.findall(text)):
            raise ValueError("a quotation has no number before it; write <!-- = ... --> behind one, without a space.")
        found = SOURCES.search(text)
        sources = yaml.safe_load(found["sources"]) if found else {}
        return QUOTED.sub(partial(self._number, sources), text)

    def _number(self, sources: dict[str, object], quoted: re.Match[str]) -> str:
        parts = [" ".join(part.split()) for part in quoted["figure"].split(";")]
        if len(parts) != 5:
            raise ValueError(f"{quoted[0]!r} is not SOURCE; LINE; TASK FOREIGN; SCORE; METRIC.")
        source, line, task, score, metric = parts
        if source not in sources:
            raise ValueError(f"{quoted[0]!r} names a source that the page does not have: {source}.")
        summaries = self._summaries(json.dumps(sources[source]))

        def summary(line: str) -> Summary:
            if (found := summaries.get((line, task, score, metric))) is None:
                raise ValueError(f"{quoted[0]!r}: no row of {source} has this figure of {line!r}.")
            return found

        shown = partial(_shown, like=quoted["mean"])
        scale = METRICS[metric].scale
        for sign, combine in COMBINED.items():
            if sign in line:
                first, second = (summary(part).mean for part in line.split(sign))
                value = shown(combine(first, second, scale))
                break
        else:
            own = summary(line)
            value = shown(scale * own.mean)
            if quoted["deviation"]:
                value += f" ± {_shown(scale * (own.deviation or 0.0), like=quoted['deviation'])}"
        return value + quoted[0][quoted[0].index("<!--") :]


COMBINED: dict[str, Callable[[float, float, float], float]] = {
    " - ": lambda first, second, scale: scale * (first - second),
    " / ": lambda first, second, _scale: first / second,
}


def _shown(value: float, like: str) -> str:
    return f"{value:,.{len(like.partition('.')[2])}f}"


def _summaries(results: Path, source: str) -> dict[Key, Summary]:
    """Every figure of a source, by the names that a quotation uses."""
    rows = RowSource.of(json.loads(source)).rows(results)
    shown = without_partial_runs(latest_rows(rows))
    found: dict[Key, Summary] = {}
    lines = own_summaries(shown, {figure_of(row, metric) for row in shown for metric in row.metrics})
    for cells, label in zip(lines.values(), line_labels(lines).values(), strict=True):
        for figure, summary in cells.items():
            foreign = f"{figure.foreign:.3g}" if isinstance(figure.foreign, float) else figure.foreign
            task = figure.task if foreign in {None, figure.task} else f"{figure.task} {foreign}"
            found[label, task, figure.score, figure.metric] = summary
    return found
