"""What the paper claims, one by one, and whether it holds for the committed rows.

Each claim is a list of checks, most of them one for each cell, and `paper_verdicts` judges them. Each is checked for
DS-UI by its classifier and by its mixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from dsui.report.columns import Figure
from dsui.report.comparison_lines import MIXTURES
from studies.paper_cells import (
    ABLATION_CELLS,
    ACCURACY_CELLS,
    ATTACK_CELLS,
    CELLS,
    EPSILONS,
    ERROR_CELLS,
    NOISE_CELLS,
    OPEN_SET_CELLS,
    OTHER_PAIR_CELLS,
    PAIR_CELLS,
    TINY_ATTACK_CELLS,
    Figures,
    Standing,
    ahead_significantly,
    in_paper,
    place_name,
    standing,
    summarize_lines,
)
from studies.paper_geometry import check_geometry
from studies.paper_lines import (
    ABLATION,
    PARTS,
    RIVALS,
    STREAMS,
    RowFiles,
    read_grid_rows,
    read_paper_rows,
    row_files,
)
from studies.paper_tables import FULL
from studies.paper_verdicts import Check, Verdict, judge


class Evidence(NamedTuple):
    """Means and deviations of all lines: of DS-UI and its rivals, of Table 1, and of its like on ResNet18."""

    methods: Figures
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
    """From the rows in this folder."""
    return _gather(row_files(results))


@cache
def _gather(files: RowFiles) -> Evidence:
    cells = [figure for figures in CELLS.values() for figure in figures]
    parts = [figure._replace(backbone="resnet18") for figure in ABLATION_CELLS]
    return Evidence(
        summarize_lines(read_paper_rows(files).rows, [*cells, *OTHER_PAIR_CELLS, *TINY_ATTACK_CELLS]),
        summarize_lines(read_grid_rows(files, ABLATION), ABLATION_CELLS),
        summarize_lines(read_grid_rows(files, PARTS), parts),
    )


def best_in(cells: Sequence[Figure]) -> Callable[[Evidence, str], list[Check]]:
    """DS-UI has the best mean in each of these cells."""
    return lambda evidence, stream: [_as_check(standing(evidence.methods, cell, stream)) for cell in cells]


def _as_check(cell: Standing) -> Check:
    return Check(cell.best if cell.run else None, cell.whole, cell if cell.run else None)


def _pairs_best(evidence: Evidence, stream: str) -> list[Check]:
    """One check for each pair: best in all four measures."""
    found = []
    for _, cells in groupby(PAIR_CELLS, place_name):
        each = [standing(evidence.methods, cell, stream) for cell in cells]
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
            of = standing(evidence.methods, cell, stream)
            rivals = [
                line for line in RIVALS.values() if in_paper(line, cell) or cell in evidence.methods.get(line, {})
            ]
            tests = [ahead_significantly(evidence.methods, cell, stream, line) for line in rivals]
            tested = [ahead for ahead in tests if ahead is not None]
            holds = all(tested) if tested else None
            found.append(Check(holds, len(tested) == len(rivals), of if of.run else None))
        return found

    return check


def _second_to_sde_net(evidence: Evidence, stream: str) -> list[Check]:
    """No rival but SDE-Net is ahead."""
    others = {line: cells for line, cells in evidence.methods.items() if line != RIVALS["sde-net"]}
    found = []
    for cell in NOISE_CELLS:
        of, everyone = standing(others, cell, stream), standing(evidence.methods, cell, stream)
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
    "attacks": Claim(
        "detection of the smallest attack that it shows (ε = 0.1) is significantly better than every rival's",
        "Figure 6",
        _significant(_WEAKEST),
    ),
    "attacks-best": Claim("detection of that attack is best", "Figure 6", best_in(_WEAKEST)),
    "attacks-tiny": Claim(
        "the same for smaller attacks, which the paper does not show (ε = 2/255, 4/255, 8/255)",
        "beside Figure 6",
        best_in(TINY_ATTACK_CELLS),
    ),
}


def verdict(claim: Claim, evidence: Evidence, stream: str) -> Verdict:
    return judge(claim.check(evidence, stream), claim.what, claim.allowed)


def claim_sentence(names: Sequence[str], evidence: Evidence) -> str:
    """Whether these claims hold here, one sentence for each."""
    sentences = []
    for name in names:
        claim = CLAIMS[name]
        verdicts = [f"{how} {verdict(claim, evidence, stream).text}" for stream, how in STREAMS.items()]
        sentences.append(f"*Claim: {claim.text}.* DS-UI {'; '.join(verdicts)}.")
    return "\n\n".join(sentences)


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
