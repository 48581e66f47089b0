"""Which figures of a comparison differ from those of the reference line, by a t-test over runs.

The tests are those of `dsui.evaluation.statistics`; published figures are tested by their printed mean, deviation and
number of runs. A score that the reference does not have, such as a rival's own, is tested against its `STAND_IN`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import NamedTuple

from dsui.evaluation.statistics import ALIKE, DIFFERENT, LEVEL, holm, obstacle, t_test
from dsui.report.columns import Figure
from dsui.report.comparison_lines import LineKey, Summaries, line_labels
from dsui.report.tables import DAGGER
from dsui.score_table import LABELS

STAND_IN = "uncertainty"
"""The recommended score, which every run has. It was named before any figure was seen; the best one would be chosen by
the figures that are tested."""


def stand_in(figure: Figure) -> Figure:
    """The figure of the reference that stands in where it lacks this one."""
    return figure._replace(score=STAND_IN)


class SignificanceTests(NamedTuple):
    """The p-value of each tested figure, and the sentences that say what was tested and what was not."""

    p_values: dict[tuple[LineKey, Figure], float]
    notes: list[str]


def significance_tests(
    reference: str,
    lines: Summaries,
    stand_ins: Summaries,
    labels: Mapping[LineKey, str],
    equal_variances: bool,
    correct: bool,
) -> SignificanceTests:
    """All lines against the one line that `reference` names; `stand_ins` are the figures that stand in for those it
    lacks. `correct`: Holm over all tests."""
    candidates = _lines_named(reference, labels)
    if len(candidates) != 1:
        found = f"{len(candidates)} lines are {reference}, the reference" if candidates else f"no line is {reference}"
        return SignificanceTests({}, [f"Nothing is tested: {found}."])
    (chosen,) = candidates
    names = {line: f"{label} {DAGGER}" if line.quoted else label for line, label in labels.items()}
    p_values: dict[tuple[LineKey, Figure], float] = {}
    reasons: dict[str, dict[str, None]] = {}
    replaced: dict[str, None] = {}
    own = lines[chosen]
    others = stand_ins.get(chosen, {})
    for line, cells in lines.items():
        for figure, summary in cells.items() if line != chosen else ():
            against = own.get(figure, others.get(stand_in(figure)))
            why = f"{names[chosen]} lacks the figure" if against is None else obstacle(summary, against)
            if against is None or why:
                reasons.setdefault(str(why), {})[names[line]] = None
            else:
                p_values[line, figure] = t_test(summary, against, equal_variances)
                if figure not in own:
                    replaced[LABELS.get(str(figure.score), str(figure.score))] = None
    if not p_values:
        return SignificanceTests({}, [f"Nothing is tested: {'; '.join(reasons)}."] if reasons else [])
    tested = {names[line] for line, _ in p_values}
    test = "Student's" if equal_variances else "Welch's"
    corrected = f", Holm-corrected over {len(p_values)} test{'s' * (len(p_values) > 1)}" if correct else ""
    notes = [
        f"{DIFFERENT} differs from {names[chosen]}, {ALIKE} does not ({test} t-test, p < {LEVEL}{corrected}).",
        *(
            [f"For scores that {names[chosen]} lacks ({', '.join(replaced)}), its {STAND_IN} is compared."]
            * bool(replaced)
        ),
        *(note for why, untested in reasons.items() for note in _untested_notes(why, untested, tested)),
    ]
    adjusted = holm(list(p_values.values())) if correct else p_values.values()
    return SignificanceTests(dict(zip(p_values, adjusted, strict=True)), notes)


def _lines_named(reference: str, labels: Mapping[LineKey, str]) -> list[LineKey]:
    """The lines that `reference` may mean: own before published, a label, also the long one, before a method's name."""
    long = line_labels(labels)
    for quoted in (False, True):
        lines = [line for line in labels if line.quoted is quoted]
        for names in (labels, long, {line: line.method for line in lines}):
            if named := [line for line in lines if names[line] == reference]:
                return named
    return []


def _untested_notes(why: str, lines: Collection[str], tested: Set[str]) -> list[str]:
    """Which lines lack every test and which lack some; joined by semicolons, since labels may hold commas."""
    parts = {
        "Not tested": [line for line in lines if line not in tested],
        "Tested in some columns only": [line for line in lines if line in tested],
    }
    return [f"{begin} ({why}): {'; '.join(found)}." for begin, found in parts.items() if found]
