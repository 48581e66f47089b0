"""What the paper claims, one by one, and whether it holds for the committed rows.

Each claim is a list of checks, most of them one for each cell. A claim fails once more checks fail than it allows. Else
it is not run yet while a cell or a rival of it has no rows, and holds when all have. Each is checked for DS-UI by its
classifier and by its mixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from dsui.report.columns import SCORES as SCORE_NAMES
from dsui.report.columns import Figure
from dsui.report.comparison_lines import MIXTURES
from dsui.report.metric_formats import METRICS as FORMATS
from studies.paper_cells import (
    ABLATION_CELLS,
    ACCURACY_CELLS,
    ATTACK_CELLS,
    CELLS,
    ERROR_CELLS,
    EPSILONS,
    NOISE_CELLS,
    OPEN_SET_CELLS,
    OTHER_PAIR_CELLS,
    PAIR_CELLS,
    Figures,
    Standing,
    ahead_significantly,
    in_paper,
    place_name,
    standing,
    summarize_lines,
)
from studies.paper_geometry import check_geometry
from studies.paper_lines import ABLATION, OURS, PARTS, RIVALS, STREAMS, read_grid_rows, read_paper_rows

HOLDS, FAILS, NOT_RUN = "holds", "fails", "not run yet"
FULL = "dsui (K 8, push, reg)"
"""The line of Table 1 with all parts."""


class Check(NamedTuple):
    """`holds` is None where nothing can be said yet. `whole`: whether every rival has rows. `behind`: the cell that
    decides, where there is one."""

    holds: bool | None
    whole: bool
    decides: Standing | None = None


class Verdict(NamedTuple):
    """`word`: HOLDS, FAILS, or NOT_RUN with its counts. `figures`: what it rests on; empty without rows."""

    word: str
    figures: str

    @property
    def text(self) -> str:
        return f"**{self.word}**: {self.figures}" if self.figures else f"**{self.word}**"


class Evidence(NamedTuple):
    """Means and deviations of all lines: against rivals, of Table 1, and of its like on ResNet18."""

    rivals: Figures
    ablation: Figures
    parts: Figures


class Claim(NamedTuple):
    """`what`: the name of a check in sentences, "cells" or "pairs". `allowed`: how many may fail."""

    text: str
    where: str
    check: Callable[[Evidence, str], list[Check]]
    what: str = "cells"
    allowed: int = 0


def gather(results: Path) -> Evidence:
    cells = [figure for figures in CELLS.values() for figure in figures]
    parts = [figure._replace(backbone="resnet18") for figure in ABLATION_CELLS]
    return Evidence(
        summarize_lines(read_paper_rows(results).rows, [*cells, *OTHER_PAIR_CELLS]),
        summarize_lines(read_grid_rows(results, ABLATION), ABLATION_CELLS),
        summarize_lines(read_grid_rows(results, PARTS), parts),
    )


def judge(checks: Sequence[Check], what: str = "cells", allowed: int = 0) -> Verdict:
    """The verdict on a claim, with the figures it rests on."""
    run = [check for check in checks if check.holds is not None]
    failed = [check for check in run if not check.holds]
    open_checks = [check for check in checks if check.holds is None or not check.whole]
    if len(failed) > allowed:
        word = FAILS
    else:
        word = f"{NOT_RUN}: {len(open_checks)} of {len(checks)} {what}" if open_checks else HOLDS
    if not run:
        return Verdict(word, "")
    counted = f"so in {len(run) - len(failed)} of {len(run)} {what} that were run"
    deciding = [check.decides for check in failed or run if check.decides is not None]
    least = min(deciding, key=lambda each: each.difference, default=None)
    return Verdict(word, f"{counted}; smallest difference {describe(least)}" if least else counted)


def describe(cell: Standing) -> str:
    """A difference to the best rival with its interval and its place."""
    measure = FORMATS[cell.figure.metric].title
    if cell.figure.metric != "accuracy":
        measure = f"{measure} of {SCORE_NAMES[cell.figure.score or '']}"
    return f"{difference_text(cell)} to {cell.rival}, {measure}, {place_name(cell.figure)}"


def difference_text(cell: Standing) -> str:
    """ "+1.44 (+0.98 to +1.90)" in points; without an interval where one of the two has a single run."""
    interval = cell.interval
    return f"{100 * cell.difference:+.2f}" + (
        "" if interval is None else f" ({100 * interval.low:+.2f} to {100 * interval.high:+.2f})"
    )


def best_in(cells: Sequence[Figure]) -> Callable[[Evidence, str], list[Check]]:
    """DS-UI has the best mean in each of these cells."""
    return lambda evidence, stream: [_as_check(standing(evidence.rivals, cell, stream)) for cell in cells]


def _as_check(cell: Standing) -> Check:
    return Check(cell.best if cell.run else None, cell.whole, cell if cell.run else None)


def _pairs_best(evidence: Evidence, stream: str) -> list[Check]:
    """One check for each pair: best in all four measures."""
    found = []
    for _, cells in groupby(PAIR_CELLS, place_name):
        each = [standing(evidence.rivals, cell, stream) for cell in cells]
        run = [cell for cell in each if cell.run]
        least = min(run, key=lambda cell: cell.difference, default=None)
        holds = all(cell.best for cell in run) if len(run) == len(each) or not all(c.best for c in run) else None
        found.append(Check(holds, all(cell.whole for cell in each), least))
    return found


def _significant(cells: Sequence[Figure]) -> Callable[[Evidence, str], list[Check]]:
    """DS-UI is ahead of every rival, each time significantly."""

    def check(evidence: Evidence, stream: str) -> list[Check]:
        found = []
        for cell in cells:
            of = standing(evidence.rivals, cell, stream)
            rivals = [line for line in RIVALS.values() if in_paper(line, cell) or cell in evidence.rivals.get(line, {})]
            tests = [ahead_significantly(evidence.rivals, cell, stream, line) for line in rivals]
            tested = [ahead for ahead in tests if ahead is not None]
            holds = all(tested) if tested else None
            found.append(Check(holds, len(tested) == len(rivals), of if of.run else None))
        return found

    return check


def _second_to_sde_net(evidence: Evidence, stream: str) -> list[Check]:
    """No rival but SDE-Net is ahead."""
    others = {line: cells for line, cells in evidence.rivals.items() if line != RIVALS["sde-net"]}
    found = []
    for cell in NOISE_CELLS:
        of, everyone = standing(others, cell, stream), standing(evidence.rivals, cell, stream)
        found.append(Check(of.best if of.run else None, everyone.whole, of if of.run else None))
    return found


def better_line(
    first: str, others: Iterable[str], cells: Sequence[Figure], of: Callable[[Evidence], Figures]
) -> Callable[[Evidence, str], list[Check]]:
    """Of two lines of DS-UI itself the first has the larger mean in each of these cells; the same for all `others`."""
    compared = tuple(others)

    def check(evidence: Evidence, stream: str) -> list[Check]:
        figures, ending = of(evidence), MIXTURES if stream.endswith(MIXTURES) else ""
        return [
            _as_check(
                Standing(
                    cell,
                    figures.get(f"{first}{ending}", {}).get(cell),
                    other,
                    figures.get(f"{other}{ending}", {}).get(cell),
                    (),
                )
            )
            for other in compared
            for cell in cells
        ]

    return check


_DETECTION = [cell for cell in ABLATION_CELLS if cell.metric != "accuracy"]
_ON_RESNET = [cell._replace(backbone="resnet18") for cell in _DETECTION]
_WITHOUT = [f"dsui (K 8, {parts})" for parts in ("push, no reg", "no push, reg", "no push, no reg")]
_TIM = [cell for cell in OPEN_SET_CELLS if cell.data == "tiny-imagenet"]
_WEAKEST = [cell for cell in ATTACK_CELLS if cell.foreign == EPSILONS[0]]

CLAIMS: Mapping[str, Claim] = {
    "components": Claim(
        "K = 8 is better than K = 1",
        "Table 1",
        better_line(FULL, ["dsui (K 1, push, reg)"], _DETECTION, lambda evidence: evidence.ablation),
    ),
    "components-resnet18": Claim(
        "the same on ResNet18, which the paper does not show (study `cifar10-parts`)",
        "beside Table 1",
        better_line("all of DS-UI, K 8", ["all of DS-UI, K 1"], _ON_RESNET, lambda evidence: evidence.parts),
    ),
    "reg": Claim(
        "Reg is better than the KL divergence",
        "Table 1",
        better_line(FULL, ["dsui (K 8, push, kl)"], _DETECTION, lambda evidence: evidence.ablation),
    ),
    "both-parts": Claim(
        "push and Reg together are better than without one or both",
        "Table 1",
        better_line(FULL, _WITHOUT, _DETECTION, lambda evidence: evidence.ablation),
    ),
    "accuracy": Claim("accuracy is best in every cell", "Table 2", best_in(ACCURACY_CELLS)),
    "misclassification": Claim("detection of errors is best in every case", "Figure 3", best_in(ERROR_CELLS)),
    "pairs": Claim(
        "detection of foreign sets is best in nine of ten pairs, each by all four measures",
        "Figure 5",
        _pairs_best,
        "pairs",
        allowed=1,
    ),
    "open-set": Claim("detection of unknown classes is best in every cell", "Table 3", best_in(OPEN_SET_CELLS)),
    "open-set-significant": Claim(
        "it is significantly better than every rival on Tiny ImageNet", "Table 3", _significant(_TIM)
    ),
    "noise": Claim("on noise no rival but SDE-Net is ahead", "Table 4", _second_to_sde_net),
    "attacks": Claim("it is best against small attacks (ε = 0.1)", "Figure 6", best_in(_WEAKEST)),
}


def verdict(claim: Claim, evidence: Evidence, stream: str) -> Verdict:
    return judge(claim.check(evidence, stream), claim.what, claim.allowed)


def claim_sentence(names: Sequence[str], evidence: Evidence) -> str:
    """Whether these claims hold here, as the sentence above a table or figure."""
    parts = []
    for name in names:
        claim = CLAIMS[name]
        verdicts = [f"{how} {verdict(claim, evidence, stream).text}" for stream, how in STREAMS.items()]
        parts.append(f"The paper's claim that {claim.text}: {'; '.join(verdicts)}.")
    return "\n\n".join(parts)


def claims_table(results: Path) -> str:
    """All claims in the order of the paper's tables and figures."""
    evidence = gather(results)
    lines = ["| claim of the paper | where | by the classifier | by the mixtures |", "|---|---|---|---|"]
    geometry = check_geometry(results)
    lines.append(f"| {geometry.claim} | Figure 1 | {geometry.verdict} | - |")
    for claim in CLAIMS.values():
        both = (verdict(claim, evidence, stream).text for stream in STREAMS)
        lines.append(f"| {claim.text} | {claim.where} | {' | '.join(both)} |")
    return "\n".join(lines)


def count_table(results: Path) -> str:
    """In how many cells DS-UI has the best mean, by table and figure."""
    rivals = gather(results).rivals
    header = ["part", "cells", "run", "with all rivals", *(f"best {how}" for how in STREAMS.values())]
    lines = [f"| {' | '.join(header)} |", f"|---|{'---:|' * (len(header) - 1)}"]
    total = [0] * (len(header) - 1)
    for part, cells in CELLS.items():
        by_stream = [[standing(rivals, cell, stream) for cell in cells] for stream in STREAMS]
        main = by_stream[0]
        numbers = [len(cells), sum(c.run for c in main), sum(c.whole for c in main)]
        numbers += [sum(c.best for c in each) for each in by_stream]
        total = [a + b for a, b in zip(total, numbers, strict=True)]
        lines.append(f"| {part_title(part)} | {' | '.join(map(str, numbers))} |")
    lines.append(f"| **all** | {' | '.join(f'**{number}**' for number in total)} |")
    best = ", ".join(f"{count} {how}" for count, how in zip(total[3:], STREAMS.values(), strict=True))
    sentence = f"{OURS} has the best mean in {best} of the {total[1]} cells that were run, out of {total[0]}."
    return f"{sentence}\n\n" + "\n".join(lines)


def part_title(part: str) -> str:
    """ "table2" as "Table 2"."""
    return f"{part[:-1].capitalize()} {part[-1]}"
