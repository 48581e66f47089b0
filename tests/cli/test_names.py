"""Names as a shell completes them: those of the registries, without importing what they name."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dsui.backbones import registry as backbones
from dsui.cli import app, names
from dsui.data.registry import DATASETS, PSEUDO
from dsui.detectors import registry as detectors
from dsui.evaluation import TASKS
from dsui.experiments import grid_file
from dsui.methods import registry as methods
from dsui.report.metric_formats import METRICS
from dsui.runs import recipe_file


def test_names_are_those_of_the_registries() -> None:
    assert names.data() == tuple(DATASETS)
    with_training_split = [name for name, info in DATASETS.items() if "train" in info.splits]
    assert names.foreign() == (*DATASETS, *(f"{name}@train" for name in with_training_split), *PSEUDO)
    assert names.methods() == methods.names()
    assert names.backbones() == backbones.names()
    assert names.detectors() == detectors.names()
    assert names.tasks() == TASKS
    assert names.metrics() == tuple(METRICS)
    assert names.recipes() == tuple(recipe_file.names())
    assert names.grids() == (*grid_file.names(), "all")
    assert {f"{key}=" for key in recipe_file.load_recipe("paper", "cifar10").settings()} - {"name="} == set(
        names.settings()
    )


def completed(line: str) -> list[str]:
    """What bash offers for the last word of the line."""
    words = line.split(" ")
    environment = {"_DSUI_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    result = CliRunner().invoke(app, [], prog_name="dsui", env=environment)
    assert result.exit_code == 0
    return result.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("dsui re", ["reproduce", "report"]),
        ("dsui data ", ["list", "get", "check", "suspects"]),
        ("dsui data get cifar", ["cifar10", "cifar100"]),
        ("dsui train --data dig", [name for name in DATASETS if name.startswith("dig")]),
        ("dsui train --method m", ["msp", "mc-dropout"]),
        ("dsui train --backbone ", list(backbones.names())),
        ("dsui train --recipe p", ["paper", "photos"]),
        ("dsui train --set ep", ["epochs="]),
        ("dsui train --mode c", ["compiled"]),
        ("dsui train --calib", ["--calibration"]),
        ("dsui evaluate run --tasks o", ["ood", "open-set"]),
        ("dsui evaluate run --tasks noise,o", ["noise,ood", "noise,open-set"]),
        ("dsui evaluate run --tasks ood,o", ["ood,open-set"]),
        ("dsui evaluate run --scores unc", ["uncertainty"]),
        ("dsui evaluate run --detectors rel", ["relative-mahalanobis"]),
        ("dsui evaluate run --foreign svhn,pa", ["svhn,patches"]),
        ("dsui evaluate run --foreign photos,sv", ["photos,svhn", "photos,svhn@train"]),
        ("dsui evaluate run --foreign pho", ["photos"]),
        ("dsui compare --metric fp", ["fpr95"]),
        ("dsui compare --format ", ["terminal", "markdown", "latex", "csv", "json"]),
        ("dsui reproduce ts", ["tsne"]),
        ("dsui reproduce tsne --engine s", ["slurm"]),
        ("dsui report run --device c", ["cpu", "cuda"]),
    ],
)
def test_a_shell_completes_commands_options_and_names(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


LIGHT = """
import os, sys
from typer.testing import CliRunner
from dsui.cli import app
for line in ("--help", "--version", "train --help", "train --data x --out y", "evaluate run --on x"):
    CliRunner().invoke(app, line.split())
os.environ.update(_DSUI_COMPLETE="complete_bash", COMP_WORDS="dsui train --method ", COMP_CWORD="3")
print(CliRunner().invoke(app, [], prog_name="dsui").stdout.split()[0], {"torch", "numpy", "scipy"} & set(sys.modules))
"""


def test_help_completion_and_wrong_names_do_not_wait_for_pytorch() -> None:
    answer = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert answer.stdout == "dsui set()\n"
