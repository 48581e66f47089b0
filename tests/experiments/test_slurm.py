"""The SLURM script of a study: valid bash, one task for each unfinished job, and nothing else is run."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import takewhile
from pathlib import Path

import pytest

from dsui.errors import DsuiError
from dsui.experiments.grid import Job
from dsui.experiments.slurm import slurm_script
from tests.support.tiny_grid import TINY, rkl_reads_msp, tiny_study  # noqa: F401


def jobs(out: Path, seeds: int = 2) -> list[Job]:
    study = tiny_study(out, TINY.replace("[0]", str(list(range(seeds)))))
    return study.jobs(study.grid.cells)


def test_the_slurm_script_is_bash_and_runs_each_unfinished_job_once_from_where_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    work = jobs(tmp_path, seeds=2)
    spaced = tmp_path / "a folder; $HOME"
    spaced.mkdir()
    monkeypatch.chdir(spaced)
    script = tmp_path / "study.sbatch"
    script.write_text(
        slurm_script("tiny", work, [bash, "-c", 'echo "$PWD" "$@"', "job"], spaced, gpu=True), encoding="utf-8"
    )
    subprocess.run([bash, "-n", script], check=True)
    text = script.read_text(encoding="utf-8")
    assert f"#SBATCH --array=0-{len(work) - 1}\n" in text
    assert "#SBATCH --gpus=1\n" in text
    assert "#SBATCH --requeue\n#SBATCH --open-mode=append\n" in text  # a log survives the task's second start
    for number, job in enumerate(work):
        environment = {"SLURM_ARRAY_TASK_ID": str(number), "PATH": os.environ["PATH"]}
        printed = subprocess.run(
            [bash, script], env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout
        assert printed == f"{spaced} --cell {','.join(cell.key for cell in job)}\n"
        assert all(cell.name in text for cell in job)
    assert "--gpus" not in slurm_script("tiny", work, ["echo"], spaced, gpu=False)


def test_nothing_in_a_name_or_path_becomes_a_command_or_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    evil = "a\ntouch ruined\n#SBATCH --begin=now\r$(touch ruined)"
    (tmp_path / evil).mkdir()
    monkeypatch.chdir(tmp_path / evil)
    (job, *_) = jobs(tmp_path)
    script = tmp_path / "study.sbatch"
    written = slurm_script(evil, [job], [bash, "-c", 'echo "$1"', "job", f"{evil}.yaml"], tmp_path / "100%", gpu=False)
    script.write_text(written, encoding="utf-8")
    environment = {"SLURM_ARRAY_TASK_ID": "0", "PATH": os.environ["PATH"]}
    done = subprocess.run([bash, script], env=environment, cwd=tmp_path, check=True, capture_output=True)
    assert done.stdout.decode() == f"{evil}.yaml\n"
    assert not list(tmp_path.rglob("ruined"))
    # SLURM reads no options behind the first command
    directives = list(takewhile(lambda line: line.startswith("#"), written.split("\n")))
    assert "#SBATCH --job-name=dsui-a-touch-ruined-SBATCH---begin-now-touch-ruined-" in directives
    assert f"#SBATCH --output={tmp_path}/100%%/%A_%a.log" in directives
    assert not [line for line in directives if "begin=" in line]
    with pytest.raises(DsuiError, match="has a line break in it, which SLURM cannot read; choose another --out"):
        slurm_script("tiny", [job], ["echo"], tmp_path / evil, gpu=False)


def test_a_label_of_several_lines_stays_in_the_comment_of_a_script(tmp_path: Path) -> None:
    text = TINY.replace("{method: dsui}", '{method: dsui, label: "two\\nlines"}')
    study = tiny_study(tmp_path, text)
    script = slurm_script("tiny", study.jobs(study.grid.cells), ["echo"], tmp_path, gpu=False)
    assert "two lines" in script
    assert "\nlines" not in script
