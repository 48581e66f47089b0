"""How DS-UI stands against its rivals: in how many cells it is best, and every difference to the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from dsui.report.columns import SCORES, Figure
from dsui.report.metric_formats import METRICS
from studies.paper_cells import CELLS, Figures, Standing, in_paper, place_name, standing
from studies.paper_lines import BEYOND, OURS, RIVALS, STREAMS
from studies.paper_verdicts import difference_text

NOT_RUN = "not run"


def count_table(figures: Figures) -> str:
    """In how many cells DS-UI has the best mean, by table and figure."""
    beyond = [line for line in BEYOND.values() if line in figures]
    competitors = (RIVALS.values(), [*RIVALS.values(), *beyond])
    header = ["part", "cells", "run", "with all rivals", *(f"best {how}" for how in STREAMS.values())]
    header += [f"the same with {' and '.join(beyond)} as rivals, {how}" for how in STREAMS.values() if beyond]
    counts = {}
    for part, cells in CELLS.items():
        among = [[standing(figures, cell, stream, of) for cell in cells] for of in competitors for stream in STREAMS]
        run, whole = (sum(getattr(cell, name) for cell in among[0]) for name in ("run", "whole"))
        counts[part] = [len(cells), run, whole, *(sum(cell.best for cell in each) for each in among)]
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    shown = slice(len(header) - 1)
    lines = [
        f"| {' | '.join(header)} |",
        f"|---|{'---:|' * (len(header) - 1)}",
        *(f"| {part_title(part)} | {' | '.join(map(str, numbers[shown]))} |" for part, numbers in counts.items()),
        f"| **all** | {' | '.join(f'**{number}**' for number in total[shown])} |",
    ]
    best = ", ".join(f"{number} {how}" for number, how in zip(total[3:5], STREAMS.values(), strict=True))
    sentence = (
        f"**Of {total[1]} cells that were run {OURS} has the best mean in {best}.** The paper has {total[0]} cells."
    )
    return "\n".join([sentence, "", *lines])


def part_title(part: str) -> str:
    """ "table2" as "Table 2"."""
    return f"{part[:-1].capitalize()} {part[-1]}"


def difference_table(figures: Figures, cells: Sequence[Figure], others: Sequence[Figure] = ()) -> str:
    """DS-UI minus the best rival at each place; `others` are cells that the figure above lacks."""
    measures = dict.fromkeys((cell.metric, cell.score) for cell in cells)
    names = [
        METRICS[metric].title if metric == "accuracy" else f"{METRICS[metric].title} {SCORES[score or '']}"
        for metric, score in measures
    ]
    lines, waiting = list[str](), list[str]()
    for place, of_place in groupby([*cells, *others], place_name):
        at_place = list(of_place)
        found = {stream: [standing(figures, cell, stream) for cell in at_place] for stream in STREAMS}
        if not any(cell.run for each in found.values() for cell in each):
            waiting.append(place)
            continue
        remark = " (not in the figure)" if at_place[0] in others else ""
        rivals = [line for line in RIVALS.values() if _counts(figures, line, at_place)]
        have = sum(any(cell in figures.get(line, {}) for cell in at_place) for line in rivals)
        for stream, each in found.items():
            differences = " | ".join(map(_difference_cell, each))
            lines.append(f"| {place}{remark}, {STREAMS[stream]} | {differences} | {have} of {len(rivals)} |")
    not_yet = f"Differences not run yet: {'; '.join(waiting)}." if waiting else ""
    if not lines:
        return not_yet
    head = [f"| {OURS} minus the best rival | {' | '.join(names)} | rivals |", f"|---|{'---:|' * (len(names) + 1)}"]
    return "\n".join([*head, *lines, *(["", not_yet] if waiting else [])])


def _counts(figures: Figures, line: str, cells: Sequence[Figure]) -> bool:
    """Whether a rival belongs to this place: by the paper, or by its rows."""
    return any(in_paper(line, cell) or cell in figures.get(line, {}) for cell in cells)


def _difference_cell(cell: Standing) -> str:
    if not cell.run:
        return NOT_RUN
    text = difference_text(cell)
    return f"{f'**{text}**' if cell.best else text} {cell.rival}"
