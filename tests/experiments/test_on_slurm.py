"""The script of a study, submitted to a real SLURM, carries out its grid whole, though a task is killed on the way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from typer.testing import CliRunner

from dsui.cli import app
from tests.support.slurm_machine import installed, run, slurm_machine, wait_until
from tests.support.tiny_grid import TINY


@installed
def test_a_grid_ends_whole_though_a_task_is_killed_in_the_middle(tmp_path: Path) -> None:
    grid, out = tmp_path / "grid.yaml", tmp_path / "study"
    grid.write_text(TINY.replace("[msp, rkl]", "msp").replace("epochs: 2", "epochs: 8"), encoding="utf-8")
    arguments = ["reproduce", str(grid), "--out", str(out), "--device", "cpu"]
    assert CliRunner().invoke(app, [*arguments, "--engine", "slurm"]).exit_code == 0

    def submit() -> str:
        return run("sbatch", "--parsable", f"--chdir={tmp_path}", out / "study.sbatch").strip()

    def states(array: str) -> set[str]:
        return set(run("squeue", "--noheader", "--array", "--states=all", f"--jobs={array}", "--format=%T").split())

    with slurm_machine(tmp_path / "slurm"):
        first = submit()
        wait_until(lambda: any(log.stat().st_size for log in out.glob("runs/*/log.jsonl")))
        victim = next(log.parent for log in out.glob("runs/*/log.jsonl") if log.stat().st_size)
        os.kill(int((victim / ".lock").read_text()), signal.SIGKILL)
        wait_until(lambda: states(first) == {"COMPLETED", "FAILED"})
        assert sum(path.name == "model.safetensors" for path in out.glob("runs/*/*")) == 1
        second = submit()
        wait_until(lambda: states(second) == {"COMPLETED"})
    table = CliRunner().invoke(app, arguments)
    assert table.exit_code == 0
    assert "accuracy %" in table.stdout
    assert len(list((out / "logs").glob(f"{first}_*.log"))) == len(list((out / "logs").glob(f"{second}_*.log"))) == 2
