"""Jobs on a real Ray cluster of two workers: none is lost or left behind when something is killed."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsui.errors import DsuiError
from dsui.evaluation.results import read
from dsui.experiments.grid import Job
from dsui.experiments.leader import run_logged
from dsui.experiments.on_ray import RETRIES, run_with_ray
from dsui.ray_cluster import ADDRESS, USAGE, connected_ray
from tests.support.ray_workers import two_workers
from tests.support.tiny_grid import TINY, tiny_study

GRID = TINY.replace("[msp, rkl]", "msp")
NOTE = """
import os, sys, time
from pathlib import Path
note = Path({out!r}, sys.argv[-1])
print("words of", note.name, flush=True)
with note.open("a") as file:
    print("began", time.time(), os.environ.get("CUDA_VISIBLE_DEVICES"), file=file, flush=True)
    {then}
    print("ended", time.time(), file=file)
sys.exit(3)
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with two_workers() as found:
        yield found


def jobs(out: Path, seeds: int) -> list[Job]:
    study = tiny_study(out, GRID.replace("[0]", str(list(range(seeds)))))
    return study.jobs(study.grid.cells)


def command(out: Path, then: str = "pass") -> list[str]:
    """A process that notes when it ran and on which GPU."""
    out.mkdir(exist_ok=True)
    return [sys.executable, "-c", NOTE.format(out=str(out), then=then)]


def words(out: Path, job: Job) -> list[list[str]]:
    return [line.split() for line in (out / job[0].key).read_text().splitlines()]


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python process that is gone at the end of the context, whatever happens in it."""
    words = [sys.executable, *map(str, arguments)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(what: Callable[[], object], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 180
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)


def gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.usefixtures("address")
def test_every_job_runs_once_on_one_gpu_two_at_a_time_from_the_folder_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    work, begun, ended = jobs(tmp_path, seeds=2), list[Job](), []
    finished = run_with_ray(
        work,
        command(Path("notes"), "time.sleep(1)"),
        gpu=True,
        logs=Path("logs"),
        job_finished=lambda job, _seconds, status: ended.append((job, status)),
        job_starts=begun.append,
    )
    assert finished
    assert begun == work
    assert sorted(ended, key=lambda pair: work.index(pair[0])) == [(job, 3) for job in work]
    notes = [words(tmp_path / "notes", job) for job in work]
    assert all([line[0] for line in note] == ["began", "ended"] for note in notes)
    assert all(note[0][2].isdigit() for note in notes), "one GPU each"
    spans = [(float(note[0][1]), float(note[1][1])) for note in notes]
    assert max(sum(began <= start < end for began, end in spans) for start, _ in spans) == 2
    for job in work:
        assert (tmp_path / "logs" / f"{job[0].run_name}.log").read_text() == f"words of {job[0].key}\n"


@pytest.mark.usefixtures("address")
def test_a_job_whose_worker_dies_every_time_begins_only_after_its_former_process_and_is_given_up_with_a_sentence(
    tmp_path: Path,
) -> None:
    (lost, *others), ended = jobs(tmp_path, seeds=1), dict[str, int | str]()
    kill = f"sys.argv[-1] == {lost[0].key!r} and (os.kill(os.getppid(), 9), time.sleep(2))"  # it writes a checkpoint
    run_with_ray(
        [lost, *others],
        command(tmp_path / "notes", kill),
        gpu=False,
        logs=tmp_path / "logs",
        job_finished=lambda job, _seconds, status: ended.update({job[0].key: status}),
    )
    assert str(ended.pop(lost[0].key)).startswith("Ray lost its process (WorkerCrashedError: The worker died")
    assert ended == {job[0].key: 3 for job in others}
    turns = [line[0] for line in words(tmp_path / "notes", lost)]
    assert turns[: 1 + 2 * RETRIES] == [*["began", "ended"] * RETRIES, "began"]


@pytest.mark.usefixtures("address")
def test_a_grid_ends_whole_though_a_worker_is_killed_in_the_middle(tmp_path: Path) -> None:
    grid, out = tmp_path / "grid.yaml", tmp_path / "study"
    grid.write_text(GRID.replace("epochs: 2", "epochs: 8"), encoding="utf-8")
    arguments = ["dsui", "reproduce", str(grid), "--out", str(out), "--engine", "ray", "--device", "cpu"]

    def training() -> list[Path]:
        return [log for log in out.glob("runs/*/log.jsonl") if log.stat().st_size]

    with started("-m", *arguments) as leader:
        wait_for(training, leader)
        victim = training()[0].parent
        job = int((victim / ".lock").read_text())
        worker = int(Path(f"/proc/{job}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(worker, signal.SIGKILL)
        table, said = leader.communicate(timeout=300)
    assert leader.returncode == 0, said
    assert "accuracy %" in table
    assert "raylet" not in table
    assert [line.partition(" ")[0] for line in said.splitlines()] == ["1/2", "2/2"], "Ray itself says nothing"
    log = (out / "logs" / f"{victim.name}.log").read_text()
    assert "dsui: stopped with 0 of 1 cells done and nothing lost" in log
    assert len({row.run for row in read([out / "results.jsonl"])[0]}) == 2


LEADING = """
import sys
from pathlib import Path
from dsui.experiments.grid_file import load_grid
from dsui.experiments.on_ray import run_with_ray
jobs = [(cell,) for cell in {cell.run_name: cell for cell in load_grid("digits").cells}.values()]
out = Path(sys.argv[1])
print(run_with_ray(jobs, [sys.executable, "-c", sys.argv[2]], gpu=False, logs=out, job_finished=print))
"""
SLEEPING = """
import os, sys, time
from dsui.experiments.leader import end_with_leader
end_with_leader()
open({out!r} + "/process-" + sys.argv[-1], "w").write(str(os.getpid()))
time.sleep(100)
"""


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_job_outlives_the_command_and_none_that_waits_begins(tmp_path: Path, how: signal.Signals) -> None:
    def running() -> list[int]:
        return [int(text) for note in tmp_path.glob("process-*") if (text := note.read_text())]

    with started("-c", LEADING, tmp_path, SLEEPING.format(out=str(tmp_path))) as leader:
        wait_for(lambda: len(running()) == 2, leader)
        leader.send_signal(how)
        printed, _ = leader.communicate(timeout=50)  # less than a task is given to end
    assert printed == ("" if how is signal.SIGKILL else "False\n")
    began = time.monotonic()
    while not all(map(gone, running())):
        assert time.monotonic() - began < 30  # far less than they would sleep
        time.sleep(0.05)
    assert len(running()) == 2, "the third never began"


def test_an_interruption_as_ray_raises_it_stops_the_process_of_a_task(tmp_path: Path) -> None:
    note = tmp_path / "process"
    once = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def interrupt_when_it_runs() -> None:
        while not (note.exists() and note.read_text()):
            time.sleep(0.01)
        _thread.interrupt_main()  # no signal is sent, so a system call that waits goes on waiting

    threading.Thread(target=interrupt_when_it_runs).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_logged([sys.executable, "-c", once], str(tmp_path), str(tmp_path / "log"))
    assert time.monotonic() - began < 30
    assert gone(int(note.read_text()))


def test_a_machine_that_does_not_see_the_study_is_told_in_one_sentence(tmp_path: Path) -> None:
    _, told = run_logged(["true"], str(tmp_path), str(tmp_path / "none" / "log"))
    assert f"could not use {tmp_path / 'none' / 'log'} (No such file or directory); Python and the folder" in str(told)
    _, told = run_logged([str(tmp_path / "python")], str(tmp_path), str(tmp_path / "log"))
    assert f"could not use {tmp_path / 'python'} (No such file or directory); Python and the folder" in str(told)


def test_a_missing_ray_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(DsuiError, match="needs the package ray; pip install ray, or choose another"),
        connected_ray(print),
    ):
        pass


@pytest.mark.parametrize("where", ["127.0.0.1:1", "nonsense", "ray://127.0.0.1:1"])
def test_a_cluster_that_does_not_answer_is_told_in_seconds(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setenv(ADDRESS, where)
    sentence = f"no Ray cluster was reached at {where} .*; correct RAY_ADDRESS, or unset it"
    with pytest.raises(DsuiError, match=sentence), connected_ray(print):
        pass


def test_a_cluster_that_is_started_here_has_no_dashboard_and_reports_no_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in, since the real one would find the clusters of other tests on this machine."""
    calls, said = list[dict[str, object]](), list[str]()

    def init(**options: object) -> None:
        calls.append(options)
        if options["address"] == "auto":
            raise ConnectionError("none runs")

    fake = SimpleNamespace(
        is_initialized=lambda: False,
        init=init,
        cluster_resources=lambda: {"CPU": 2.0},
        shutdown=lambda: calls.append({"ended": True}),
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delenv(ADDRESS, raising=False)
    monkeypatch.delenv(USAGE, raising=False)
    with connected_ray(said.append):
        assert os.environ[USAGE] == "0"
    monkeypatch.delenv(USAGE)
    assert calls[1]["address"] == "local"
    assert calls[1]["include_dashboard"] is False
    assert calls[-1] == {"ended": True}
    assert said == ["No Ray cluster was found, so one of 2 processors was started on this machine."]
