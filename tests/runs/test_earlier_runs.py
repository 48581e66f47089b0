"""A run that version 0.1.0 trained and evaluated is still read, evaluated and compared as it was.

tests/fixtures/run-0.1.0 was made by these commands, of which the detectors' rows were left out:

    dsui train --data digits-256 --backbone small --recipe demo --set epochs=4 --calibration 0.2 --out run-0.1.0
    dsui evaluate run-0.1.0 --foreign photos --tasks misclassification,ood,noise
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from dsui.cli import app
from dsui.errors import RunError
from dsui.runs.config import RunConfig
from dsui.runs.folder import RunFolder
from dsui.runs.log import read_log
from dsui.runs.model import load_model, run_facts
from dsui.runs.recipe_file import load_recipe, method_options

FIXTURE = Path(__file__).parents[1] / "fixtures" / "run-0.1.0"
NOT_COMPARED = ("run", "versions", "commit", "seconds", "metrics")
"""What a row says about where and when it was computed; the metrics are compared separately."""


ADDED_LATER = {"foreignness"}
"""Scores that version 0.1.0 did not have."""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A copy that a test may write to."""
    return Path(shutil.copytree(FIXTURE, tmp_path / "run"))


def same_command(**settings: object) -> RunConfig:
    """The config that today's `dsui train` makes of the command above."""
    overrides, options = method_options("dsui", {"epochs": 4, **settings})
    return RunConfig(
        data="digits-256",
        backbone="small",
        method="dsui",
        seed=0,
        size=8,
        channels=1,
        recipe=load_recipe("demo", "digits-256", overrides),
        options=options,
        held_out=0.2,
    )


def facts(row: dict[str, Any]) -> dict[str, object]:
    return {key: value for key, value in row.items() if key not in NOT_COMPARED}


def metrics(row: dict[str, Any]) -> dict[str, float]:
    """Without what depends on the machine: the time, and how many scores are equal to the last bit."""
    return {name: value for name, value in row["metrics"].items() if name not in {"seconds_per_1000", "ties"}}


def test_its_rows_come_out_as_they_were(earlier: Path) -> None:
    (earlier / "results.jsonl").unlink()
    command = ["evaluate", str(earlier), "--foreign", "photos", "--tasks", "misclassification,ood,noise", "--quiet"]
    assert CliRunner().invoke(app, command).exit_code == 0
    before, found = (
        [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()] for run in (FIXTURE, earlier)
    )
    found = [row for row in found if row["score"] not in ADDED_LATER]
    assert len(before) == len(found) == 56
    for old, new in zip(before, found, strict=True):
        assert facts(new) == facts(old)
        # On the machine that made them they are equal to the last bit; another one may round the network otherwise.
        same = {name: metrics(new)[name] for name in metrics(old)}  # later versions add metrics
        assert same == pytest.approx(metrics(old), rel=1e-4, abs=1e-6), old["score"]


def test_its_config_is_that_of_the_same_command_today(earlier: Path) -> None:
    config = run_facts(earlier).config
    assert config == same_command()
    assert config.mapping() == same_command().mapping()
    assert config == same_command(components=4, rho=None)
    assert config != same_command(components=3)


def test_it_is_resumed_by_the_same_command_and_by_no_other(earlier: Path) -> None:
    (earlier / "model.safetensors").unlink()
    RunFolder.resume(earlier, same_command()).close()
    with pytest.raises(RunError, match=r"begun with other settings \(components: 4 there, 3 here\); resume with those"):
        RunFolder.resume(earlier, same_command(components=3))
    with pytest.raises(RunError, match=r"\(options.kappa: absent there, 16.0 here\)"):
        RunFolder.resume(earlier, same_command(kappa=16))


def test_its_log_is_read_whole(earlier: Path) -> None:
    log = read_log(earlier / "log.jsonl")
    assert [row["epoch"] for row in log.rows] == [0, 1, 2, 3]
    assert log.problems == []


def test_it_predicts_as_another_method_that_reads_its_weights(earlier: Path) -> None:
    model = load_model(run_facts(earlier, "dsui-density"), torch.device("cpu"))
    assert model.facts.config.method == "dsui-density"
    assert model.method.get_parameter("head.means").shape == torch.Size([10, 4, 128])


def test_it_has_no_checksum_and_whoever_uses_it_is_told(earlier: Path, tmp_path: Path) -> None:
    sentence = f"the weights of {earlier} are of an earlier dsui, without a checksum, so damage may go unnoticed."
    assert run_facts(earlier).notes == [sentence]
    (tmp_path / "image.png").write_bytes(b"no image")
    for command in (
        ["evaluate", str(earlier), "--tasks", "misclassification", "--no-cache"],
        ["predict", str(earlier), str(tmp_path / "image.png")],
    ):
        result = CliRunner().invoke(app, command)
        assert f"Note: {sentence}" in result.stderr.replace("\n", " ")
