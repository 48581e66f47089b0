"""How many images until the alarm, once a part of a stream becomes foreign? Real digits, with noise or photographs.

    python -m studies.alarms RUN

RUN was trained on digits as docs/deploy.md does it. Its calibration images and a stream of test digits, drawn with
replacement, give a monitor; from some image on, a share of the stream is foreign. Printed is the table of
docs/monitoring.md: the median and the 90 % quantile of the images until the alarm over 200 streams, which are watched
for 3,000 images, and how many of them have no alarm by then.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dsui.evaluation.evaluate import open_evaluation
from dsui.monitoring.uncertainty import PERCENTS
from dsui.monitoring.urn import UrnMartingale
from dsui.runs.calibration import stored_calibration
from dsui.runs.model import run_facts
from dsui.scores import all_scores

STREAMS, WATCHED, FALSE_ALARM = 200, 3000, 0.01
COVERAGE = 0.95
BEFORE, SHARES, FOREIGN = (0, 2000), (0.1, 0.3), ("noise", "photos")
Scores = dict[str, NDArray[np.float64]]


def uncertainties(run: Path) -> Scores:
    """Of the calibration images, of test digits and of foreign images, by name."""
    facts = run_facts(run)
    calibration = stored_calibration(facts)
    with open_evaluation(facts, torch.device("cpu")) as evaluation:
        found = evaluation.sources
        sources = {"digits": found.own(), "photos": found.foreign("photos"), "noise": found.noise()}
        parts = {
            name: [
                all_scores(chunk, calibration.reference)["uncertainty"].numpy()
                for chunk in evaluation.outputs(source).chunks(features=True)
            ]
            for name, source in sources.items()
        }
    return {
        "calibration": calibration.uncertainties.numpy(),
        **{name: np.concatenate(each) for name, each in parts.items()},
    }


def images_until_alarm(
    scores: Scores, ranks: Sequence[int], before: int, foreign: str, share: float
) -> NDArray[np.float64]:
    """[streams] from the change on; infinity without an alarm. Streams with a false alarm are left out."""
    generator = np.random.default_rng(0)
    limits = np.sort(scores["calibration"])[np.array(ranks) - 1]
    urn = UrnMartingale(ranks, len(scores["calibration"]), shape=(STREAMS,))
    alarm = np.full(STREAMS, np.inf)
    for image in range(before + WATCHED):
        values = scores["digits"][generator.integers(0, len(scores["digits"]), STREAMS)]
        if image >= before:
            others = scores[foreign][generator.integers(0, len(scores[foreign]), STREAMS)]
            values = np.where(generator.random(STREAMS) < share, others, values)
        wealth = urn.update(values[:, None] <= limits)
        alarm = np.minimum(alarm, np.where(wealth >= -math.log(FALSE_ALARM), image + 1 - before, np.inf))
        if (alarm < np.inf).all():
            break
    return alarm[alarm > 0]


def table(scores: Scores) -> str:
    """In Markdown."""
    images = len(scores["calibration"])
    kinds = {
        "acceptance": [math.ceil((images + 1) * COVERAGE)],
        "uncertainty": sorted({max(1, math.ceil(images * percent / 100)) for percent in PERCENTS}),
    }
    lines = [
        "| digits before | foreign images | share | acceptance: median | 90 % | no alarm | uncertainty: median | 90 % "
        "| no alarm |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for before in BEFORE:
        for foreign in FOREIGN:
            for share in SHARES:
                cells = []
                for ranks in kinds.values():
                    found = images_until_alarm(scores, ranks, before, foreign, share)
                    middle, late = np.quantile(found, [0.5, 0.9], method="higher")
                    shown = ["never" if np.isinf(each) else f"{each:,.0f}" for each in (middle, late)]
                    cells += [*shown, f"{np.isinf(found).mean():.1%}"]
                lines.append(f"| {before:,} | {foreign} | {share:.0%} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(uncertainties(Path(sys.argv[1]))))
