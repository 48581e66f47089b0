"""Predictions by a real Ray of two processors: what the ordinary command says, also after kills."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pandas as pd
import pytest
import torch
from PIL import Image

from dsui.data.registry import load
from dsui.deploy.predictor import Predictor
from dsui.export.run_export import export_run
from tests.support.command_line import dsui, exit_status
from tests.support.digit_runs import calibrated, own_copy

FILES = 600
SMALL = ("--engine", "ray", "--batch", "4", "--quiet")
"""Batches of four, so that a part has 128 rows."""
PATIENCE = 240.0
"""Seconds; a busy machine takes a minute."""
pytestmark = pytest.mark.filterwarnings("ignore")
"""Ray uses what it and others call deprecated."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two saved limits, its ONNX file, and a folder of digits and of files that are none."""
    root = tmp_path_factory.mktemp("ray")
    run = own_copy(calibrated(), root / "run")
    predictor = Predictor.load(run, "cpu")
    predictor.threshold(0.9, two=True)
    predictor.save_threshold()
    export_run(run, root / "model.onnx")
    digits = load("digits", "test").read(torch.arange(FILES))[:, 0].numpy()
    for number, digit in enumerate(digits):
        file = root / "photos" / f"part {number % 3}" / f"{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digit).save(file)
    (root / "photos" / "part 1" / "301 broken.png").write_bytes(b"no image")
    return root


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two processors, started by this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # otherwise Ray writes one to the user's home
        import ray

        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        patch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)  # for processes of the tests
        yield
        ray.shutdown()


def kill_actor_after_first_part(out: Path, killed: list[int], over: Event) -> None:
    """Kill the process that keeps the model, once the job has written a part of its answers."""
    while not over.is_set():
        if any(out.glob("part-*.parquet")):
            killed.extend(actors())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.02)


def actors() -> list[int]:
    """The processes of Ray below this one that keep a model."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (title := _read(entry / "cmdline")).startswith("ray::") and "Answering" in title:
            above = _parent(entry.name)
            if _parent(above) == str(os.getpid()):
                found.append(int(entry.name))
    return found


def _parent(pid: str) -> str:
    return _read(Path("/proc") / pid / "stat").rpartition(")")[2].split()[1]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ") ? 0"


def ordinary(model: Path, *paths: Path) -> pd.DataFrame:
    """The rows of the ordinary command."""
    printed = dsui("predict", model, *paths, "--json", "--quiet")
    return pd.DataFrame([json.loads(line) for line in printed.stdout.splitlines()])


def check_same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert list(found.columns) == list(expected.columns)
    for name in found.columns:
        if found[name].dtype.kind == "f":
            # batches of other sizes are computed in another order
            pd.testing.assert_series_equal(found[name], expected[name].astype(float), rtol=1e-4, atol=1e-6)
        else:
            assert found[name].fillna("").tolist() == expected[name].fillna("").tolist(), name


@pytest.mark.usefixtures("cluster")
def test_a_job_that_loses_its_worker_says_what_the_ordinary_command_says(place: Path, tmp_path: Path) -> None:
    out, missing, killed, over = tmp_path / "answers", place / "missing.png", list[int](), Event()
    killer = Thread(target=kill_actor_after_first_part, args=(out, killed, over))
    killer.start()
    printed = dsui("predict", place / "run", place / "photos", missing, *SMALL, "--out", out)
    over.set()
    killer.join()
    assert killed, printed.exception
    assert str(printed.exception) == "2 of 602 files cannot be used; their rows say why."
    check_same(pd.read_parquet(out), ordinary(place / "run", place / "photos", missing))


@pytest.mark.usefixtures("cluster")
def test_a_killed_job_goes_on_with_the_files_that_have_no_answer(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers"
    words = ["predict", place / "model.onnx", place / "photos", *SMALL, "--out", out]
    command = [sys.executable, "-m", "dsui", *map(str, words)]
    with subprocess.Popen(command, start_new_session=True) as job:
        end = time.monotonic() + PATIENCE
        while not any(out.glob("part-*.parquet")):
            assert job.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        job.kill()
    former = {part: part.read_bytes() for part in out.glob("part-*.parquet")}
    assert 0 < sum(map(rows, former)) < FILES
    assert dsui(*words).exit_code == 1  # for the broken file
    assert {part: part.read_bytes() for part in former} == former
    found = pd.read_parquet(out)
    assert found["file"].is_unique
    expected = ordinary(place / "model.onnx", place / "photos")
    check_same(found.sort_values("file", ignore_index=True), expected.sort_values("file", ignore_index=True))


def rows(part: Path) -> int:
    return len(pd.read_parquet(part))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "--engine ray writes a folder of Parquet files; name one, as in --out answers."),
        (("--out", "a.csv"), "--engine ray writes a folder of Parquet files; name one, as in --out answers."),
        (("--out", "a", "--json"), "--engine ray writes Parquet; leave out --json."),
        (("--out", "a", "--coverage", "0.9"), "--engine ray decides by the threshold that the run keeps;"),
        (("--out", "a", "--backbone", "torch.nn:Flatten"), "--engine ray takes no --backbone,"),
    ],
)
def test_what_a_cluster_cannot_keep_is_one_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status("predict", "runs/mine", "photos", "--engine", "ray", *words) == 2
    assert capsys.readouterr().err.startswith(f"dsui: {sentence}")


def test_an_error_inside_of_ray_is_told_by_its_own_sentence() -> None:
    from dsui.deploy.ray_rows import _told
    from dsui.errors import ModelError

    error: Any = RuntimeError("in a worker")
    error.cause = ModelError("model.onnx fails on its input; export it again.")
    assert str(_told(error)) == "model.onnx fails on its input; export it again."
    assert str(_told(RuntimeError("lost"))).startswith("Ray could not go on (RuntimeError: lost);")
