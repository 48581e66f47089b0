"""Two processes on one machine train what one process trains, and a lost process ends the job with a sentence."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from dsui.data.registry import load
from dsui.errors import DsuiError
from dsui.runs.checkpoint import load_state
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe
from dsui.runs.weights import load_weights
from dsui.training.distributed import DESCRIPTION, World, joined
from dsui.training.trainer import Trainer
from tests.support import forked

STEPS = 20
SGD = {"optimizer": "sgd", "peak_rate": 0.05, "momentum": 0.9, "nesterov": True, "rate_warm_up": 0}


def run_steps(world: World, dtype: torch.dtype, settings: dict[str, Any]) -> Trainer:
    torch.set_num_threads(1)
    torch.set_default_dtype(dtype)
    try:
        recipe = load_recipe("demo", "digits", {"epochs": 4, **settings})
        run = RunConfig(data="digits", backbone="small", method="dsui", seed=0, size=8, channels=1, recipe=recipe)
        trainer = Trainer(run, load("digits", "train"), torch.device("cpu"), world)
        trainer.transform.to(dtype)
        taken = 0
        for epoch in range(recipe.epochs):
            for _ in trainer.epoch_steps(epoch, 0):
                taken += 1
                if taken == STEPS:
                    return trainer
    finally:
        torch.set_default_dtype(torch.float32)
    raise AssertionError("the epochs were too few")


def process(rank: int, port: int, out: str, dtype: torch.dtype, settings: dict[str, Any]) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2"
    )
    with joined("cpu") as world:
        save_steps(run_steps(world, dtype, settings), f"{out}/{rank}.pt")
    deadline = time.monotonic() + 10  # the system may list a thread a little longer than it runs
    while "pt_gloo_runloop" in threads():
        assert time.monotonic() < deadline, "a group whose threads outlive it may abort the process at its end"


def save_steps(trainer: Trainer, path: str) -> None:
    torch.save(
        {"model": trainer.method.state_dict(), "loss": torch.tensor(trainer.step.meter.sums()["loss"])},
        path,
    )


def threads() -> list[str]:
    """The names of this process's threads, where the system tells them (Linux)."""
    names = []
    for thread in Path("/proc/self/task").glob("*"):
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            names.append((thread / "comm").read_text().strip())
    return names


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def two_processes(out: Path, dtype: torch.dtype, settings: dict[str, Any]) -> list[dict[str, Any]]:
    forked.two_processes(process, free_port(), str(out), dtype, settings)
    return [torch.load(out / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize(
    "settings", [SGD, {**SGD, "density_warm_up": 1, "initialize": True}, {**SGD, "doubles": "turns"}]
)
def test_two_processes_reach_the_weights_of_one_in_float64(tmp_path: Path, settings: dict[str, Any]) -> None:
    ranks = two_processes(tmp_path, torch.float64, settings)
    alone = run_steps(World(), torch.float64, settings).method.state_dict()
    for name, value in alone.items():
        for rank in ranks:
            assert (rank["model"][name] - value).abs().max().item() <= 1e-9, name


def test_two_processes_have_the_loss_of_one_with_adam_in_float32(tmp_path: Path) -> None:
    ranks = two_processes(tmp_path, torch.float32, {})
    alone = run_steps(World(), torch.float32, {}).step.meter.sums()["loss"]
    together = sum(rank["loss"].item() for rank in ranks)
    assert together == pytest.approx(alone, rel=1e-3)


def command(out: Path, *more: str) -> list[str]:
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        f"--master-port={free_port()}",
        *more,
    ]
    settings = ["--set=epochs=3", "--checkpoint-seconds=0.01", "--device=cpu"]
    return [
        *launcher,
        "-m",
        "dsui",
        "train",
        "--data=digits",
        "--backbone=small",
        "--recipe=demo",
        *settings,
        f"--out={out}",
    ]


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_torchrun_trains_and_only_the_leader_writes_and_prints(tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path / "run"), capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Trained; the weights are in") == 1
    weights, _ = load_weights(tmp_path / "run" / "model.safetensors")
    assert "head.means" in weights
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 3


def send(number: signal.Signals, job: subprocess.Popen[str], out: Path, leads: bool) -> None:
    """Once there is a checkpoint, send a signal to the process that writes it, or to the other one."""
    deadline = time.monotonic() + 60
    while not (out / "state.pt").exists():
        assert job.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = [int(pid) for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]
    leader = int((out / ".lock").read_text())
    os.kill(next(child for child in children if (child == leader) == leads), number)


@pytest.mark.soak
def test_a_lost_process_ends_the_job_with_a_sentence_and_a_usable_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = command(out)
    arguments[arguments.index("--set=epochs=3")] = "--set=epochs=30"
    job = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    send(signal.SIGKILL, job, out, leads=False)
    _, said = job.communicate(timeout=60)
    assert job.returncode != 0
    assert "another process of this job died; the last checkpoint is of step" in said
    resumed = subprocess.run(
        [*arguments, "--resume"], capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=60
    )
    assert resumed.returncode == 0, resumed.stderr
    assert (out / "model.safetensors").exists()
    assert len((out / "log.jsonl").read_text().splitlines()) == 30, "no epoch is missing or twice"


@pytest.mark.soak
@pytest.mark.parametrize("leads", [True, False])
def test_a_stopped_process_is_named_and_ends_the_job_with_a_sentence(tmp_path: Path, leads: bool) -> None:
    out = tmp_path / "run"
    arguments = command(out)
    arguments[arguments.index("--set=epochs=3")] = "--set=epochs=1000"
    job = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    send(signal.SIGSTOP, job, out, leads)
    _, said = job.communicate(timeout=180)
    assert job.returncode != 0
    who = f"process {0 if leads else 1} of this job has not answered for"
    assert f"{who} 15 s; the job ends in 45 s if that goes on." in said
    assert f"{who} 60 s; the last checkpoint is of step" in said
    assert "the last checkpoint is of step 0" not in said


@pytest.mark.soak
def test_the_death_of_the_leader_is_told_with_the_step_on_the_disk(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = command(out)
    arguments[arguments.index("--set=epochs=3")] = "--set=epochs=1000"
    job = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    send(signal.SIGKILL, job, out, leads=True)
    _, said = job.communicate(timeout=180)
    state = load_state(out / "state.pt", "cpu")
    assert state is not None
    assert state["steps"] > 0
    assert f"another process of this job died; the last checkpoint is of step {state['steps']};" in said


@pytest.mark.soak
def test_torchrun_restarts_a_job_from_its_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = command(out, "--max-restarts=1")
    arguments[arguments.index("--set=epochs=3")] = "--set=epochs=30"
    job = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    send(signal.SIGKILL, job, out, leads=False)
    _, said = job.communicate(timeout=90)
    assert job.returncode == 0, said
    assert len((out / "log.jsonl").read_text().splitlines()) == 30


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({"WORLD_SIZE": "2"}, "RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT"),
        ({"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "here", "MASTER_PORT": "1"}, "LOCAL_RANK"),
    ],
)
def test_half_a_description_of_a_job_is_told(
    environment: dict[str, str], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in DESCRIPTION:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(DsuiError, match=f"a distributed job without {missing}; start it with torchrun"), joined("cpu"):
        pass


def test_a_world_of_one_needs_no_description(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DESCRIPTION:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "1")
    with joined("cpu") as world:
        assert world == World()
