"""Engines: every job is one process, several at a time, spread over GPUs, and a stop reaches all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dsui.experiments.engines import run_in_processes, visible_gpus
from dsui.experiments.grid import Job
from dsui.experiments.queue import Deadline
from tests.support.tiny_grid import TINY, rkl_reads_msp, tiny_study  # noqa: F401

NOTE = """
import os, sys, time
began = time.time()
time.sleep({pause})
keys = sys.argv[sys.argv.index("--cell") + 1]
with open({out!r} + "/" + keys.split(",")[0], "w") as file:
    gpu, threads = map(os.environ.get, ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"))
    file.write(f"{{began}} {{time.time()}} {{gpu}} {{threads}}")
sys.exit({status})
"""


def command(out: Path, pause: float = 0.0, status: int = 0) -> list[str]:
    """A process that notes when it ran and on which GPU."""
    out.mkdir(exist_ok=True)
    return [sys.executable, "-c", NOTE.format(out=str(out), pause=pause, status=status)]


def jobs(out: Path, seeds: int = 2) -> list[Job]:
    study = tiny_study(out, TINY.replace("[0]", str(list(range(seeds)))))
    return study.jobs(study.grid.cells)


def notes(out: Path, work: list[Job]) -> list[list[str]]:
    return [(out / job[0].key).read_text(encoding="utf-8").split() for job in work]


def test_jobs_run_several_at_a_time_and_share_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setenv("OMP_NUM_THREADS", "")  # as good as not set
    work, ended = jobs(tmp_path), []
    out = tmp_path / "notes"
    finished = run_in_processes(
        work,
        command(out, pause=0.5),
        2,
        logs=tmp_path / "logs",
        job_finished=lambda job, _seconds, status: ended.append((job, status)),
    )
    assert finished
    assert sorted(ended, key=lambda pair: work.index(pair[0])) == [(job, 0) for job in work]
    spans = [(float(began), float(end)) for began, end, *_ in notes(out, work)]
    together = [sum(began <= start < stop for began, stop in spans) for start, _ in spans]
    assert max(together) == 2
    assert {gpu for _, _, gpu, _ in notes(out, work)} == {"3", "5"}
    assert {threads for *_, threads in notes(out, work)} == {str(max(1, (os.cpu_count() or 1) // 2))}


def test_an_exit_status_and_what_a_job_printed_are_kept(tmp_path: Path) -> None:
    (first, *_), ended, polled = jobs(tmp_path), [], []
    loud = [sys.executable, "-c", "import sys; print('words'); sys.exit(7)"]
    run_in_processes(
        [first],
        loud,
        2,
        logs=tmp_path / "logs",
        job_finished=lambda *facts: ended.append(facts[2]),
        poll=lambda: polled.append(len(ended)),
    )
    assert ended == [7]
    assert set(polled) == {0}, "polled while the job runs, and not after it"
    assert (tmp_path / "logs" / f"{first[0].run_name}.log").read_text(encoding="utf-8") == "words\n"


def test_an_interruption_ends_all_jobs_and_starts_no_other(tmp_path: Path) -> None:
    work, ended = jobs(tmp_path), []
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    assert not run_in_processes(
        work,
        command(tmp_path / "notes", pause=60),
        2,
        logs=tmp_path / "logs",
        job_finished=lambda *_: ended.append(1),
    )
    assert time.monotonic() - began < 30  # far less than the jobs would take
    assert not ended
    assert not list((tmp_path / "notes").iterdir())


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("where", ["job_finished", "job_starts"])
def test_no_job_outlives_an_error_of_the_leading_process(tmp_path: Path, where: str) -> None:
    work, note = jobs(tmp_path, seeds=2), tmp_path / "process"
    exclusive = f"os.open({str(note)!r}, os.O_CREAT | os.O_EXCL | os.O_WRONLY)"  # the first stays, the second fails
    once = f"import os, time; os.write({exclusive}, str(os.getpid()).encode()); time.sleep(60)"

    def full(*_: object) -> None:
        while not note.exists() or not note.read_text():
            time.sleep(0.01)
        raise OSError("No space left on device")

    def first_is_fine(job: Job) -> None:
        if job != work[0]:
            full()

    finished, starts = {"job_finished": full}, {"job_finished": print, "job_starts": first_is_fine}
    callbacks: dict[str, Any] = finished if where == "job_finished" else starts
    with pytest.raises(OSError, match="No space left"):
        run_in_processes(work, [sys.executable, "-c", once], 2, logs=tmp_path / "logs", **callbacks)
    assert gone(int(note.read_text()))


WATCHING = "from dsui.experiments.leader import end_with_leader; end_with_leader()"
NOTING = "import os, sys, time; open(sys.argv[1] + sys.argv[-1], 'w').write(str(os.getpid())); time.sleep(60)"
LEADING = """
import sys
from pathlib import Path
from dsui.experiments.engines import run_in_processes
from dsui.experiments.grid_file import load_grid
jobs = [(cell,) for cell in load_grid("tsne").cells]
out = Path(sys.argv[1])
run_in_processes(jobs, [sys.executable, "-c", sys.argv[2], str(out / "process-")], 2, logs=out, job_finished=print)
"""


def test_no_job_outlives_the_leading_process_however_it_was_killed(tmp_path: Path) -> None:
    leader = subprocess.Popen([sys.executable, "-c", LEADING, tmp_path, f"{WATCHING}; {NOTING}"])
    try:
        while len(notes := [note for note in tmp_path.glob("process-*") if note.read_text()]) < 2:
            assert leader.poll() is None
            time.sleep(0.02)
    finally:
        leader.kill()
        leader.wait()
    until = time.monotonic() + 60
    while not all(gone(int(note.read_text())) for note in notes):
        assert time.monotonic() < until, "a job outlived its leader"
        time.sleep(0.05)


def test_a_process_of_nobody_does_not_end_because_its_input_is_closed() -> None:
    words = f"{WATCHING}; import time; time.sleep(0.5); print('still here')"
    alone = {**os.environ, "DSUI_LEADER": ""}
    done = subprocess.run(
        [sys.executable, "-c", words], env=alone, stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True
    )
    assert (done.returncode, done.stdout) == (0, "still here\n")


def test_after_the_deadline_no_job_begins_and_none_goes_on(tmp_path: Path) -> None:
    work, ended = jobs(tmp_path, seeds=2), []
    deadline = Deadline(1.0, time.time())
    began = time.monotonic()
    assert run_in_processes(
        work,
        command(tmp_path / "notes", pause=60),
        1,
        logs=tmp_path / "logs",
        job_finished=lambda *_: ended.append(1),
        deadline=deadline,
    )
    assert 1 <= time.monotonic() - began < 30
    assert not ended
    assert len(list((tmp_path / "logs").iterdir())) == 1


def test_jobs_are_told_when_their_training_has_to_stop(tmp_path: Path) -> None:
    deadline = Deadline(600.0, time.time())
    speaking = [sys.executable, "-c", "import sys; print(sys.argv[1:3])"]
    (job, *_) = jobs(tmp_path)
    run_in_processes([job], speaking, 1, logs=tmp_path / "logs", job_finished=print, deadline=deadline)
    printed = (tmp_path / "logs" / f"{job[0].run_name}.log").read_text(encoding="utf-8")
    assert printed == f"['--stop-at', '{deadline.moment - 10:.3f}']\n"


def test_the_callback_comes_before_the_process_of_a_job_starts(tmp_path: Path) -> None:
    work, begun = jobs(tmp_path), []

    def job_starts(job: Job) -> None:
        assert not (tmp_path / "logs" / f"{job[0].run_name}.log").exists()
        begun.append(job)

    run_in_processes(
        work,
        command(tmp_path / "notes"),
        2,
        logs=tmp_path / "logs",
        job_finished=lambda job, *_: begun.remove(job),
        job_starts=job_starts,
    )
    assert len(notes(tmp_path / "notes", work)) == len(work)
    assert not begun


def test_visible_gpus_are_those_the_user_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,MIG-7")
    assert visible_gpus() == ["1", "MIG-7"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []
