"""The example scripts, run as a reader runs them: what they print is what they promise.

Bars lie well below what was printed when they were written, since other versions of torch round otherwise.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def printed(name: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []  # an example leaves nothing behind
    return done.stdout


def test_a_head_in_ones_own_loop_learns_and_finds_errors_and_photographs(tmp_path: Path) -> None:
    text = printed("own_training_loop.py", tmp_path)
    losses = [float(value) for value in re.findall(r"epoch +\d+: loss (\S+)", text)]
    assert len(losses) == 4
    assert losses == sorted(losses, reverse=True)
    accuracy, errors, photographs = (float(value) for value in re.findall(r"(?:accuracy|AUROC) (\S+)%", text))
    assert accuracy > 95  # 98.1
    assert errors > 88  # 96.6
    assert photographs > 95  # 100.0


def test_a_lower_coverage_leaves_fewer_errors_among_what_is_accepted(tmp_path: Path) -> None:
    text = printed("reject_the_uncertain.py", tmp_path)
    rows = [[float(cell) for cell in re.findall(r"(\d+\.\d)%", line)] for line in text.splitlines()[1:5]]
    accepted, wrong, noise = zip(*rows, strict=True)
    assert list(accepted) == sorted(accepted)
    assert list(wrong) == sorted(wrong)
    # A share accepted deviates by sqrt(c (1 - c) / 200) over the calibration images: 2.8 % at a coverage of 80 %.
    assert all(abs(share - asked) < 10 for share, asked in zip(accepted, (80, 90, 95, 100), strict=True))
    assert wrong[0] < wrong[-1] < 6  # 0.1 and 2.7
    assert noise[0] > 90  # 100.0
    assert len(re.findall(r"image +\d+: model says \d \(\d+% sure\), it is \d", text)) == 5
    assert "Saved and loaded: predictions are the same." in text


def test_detectors_are_compared_on_both_networks(tmp_path: Path) -> None:
    text = printed("compare_detectors.py", tmp_path)
    plain, dsui = (
        {name.strip(): float(value) for name, value in re.findall(r"^(\S.{17}) +(\S+) +\S+$", part, re.MULTILINE)}
        for part in text.split("dsui: ")
    )
    assert set(dsui) - set(plain) == {"log-density"}
    assert len(plain) == 6
    for table in (plain, dsui):
        assert list(table.values()) == sorted(table.values(), reverse=True)
    assert plain["mahalanobis"] > 97  # 100.0, from the features of the same network that Max.P. of 83.8 comes from
    assert plain["mahalanobis"] > plain["max probability"]
    assert dsui["log-density"] > 90  # 98.4
    assert all(float(accuracy) > 94 for accuracy in re.findall(r"accuracy (\S+)%", text))  # 97.7 both
