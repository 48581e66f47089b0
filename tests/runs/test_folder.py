"""A run folder under kills, other processes, other settings and damaged files."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import yaml

from dsui.errors import RunError
from dsui.runs import checkpoint, files
from dsui.runs.config import RunConfig
from dsui.runs.folder import RunFolder
from dsui.runs.recipe_file import changed, load_recipe
from dsui.runs.weights import load_weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

RECIPE = load_recipe("demo", "digits", {"mean": [0.5, 0.5], "std": [1, 1]})
CONFIG = RunConfig(data="digits", backbone="small", method="dsui", seed=0, size=8, channels=2, recipe=RECIPE)
KILLS = 20

# a forked child has torch at once; it uses no thread of its parent
FORK = multiprocessing.get_context("fork")
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def logged(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "log.jsonl").read_bytes().splitlines()]


def begun(path: Path) -> Path:
    RunFolder.create(path, CONFIG).close()
    return path


def save_for_ever(path: Path, done: int, ready: Connection) -> None:
    with RunFolder.resume(path, CONFIG) as folder:
        for step in range(done + 1, 1_000_000):
            folder.save_state({"step": step, "weights": torch.full((30_000,), float(step))})
            folder.log({"step": step})
            ready.send(step)


def hold(path: Path, ready: Connection, with_child: bool) -> None:
    with RunFolder.resume(path, CONFIG):
        child = FORK.Process(target=time.sleep, args=(60,))
        if with_child:
            child.start()
        ready.send(child.pid)
        time.sleep(60)


@forks
def test_run_killed_at_any_moment_has_a_whole_checkpoint_and_is_free_at_once(tmp_path: Path) -> None:
    path, chance, done = begun(tmp_path / "a"), np.random.default_rng(0), 0
    interrupted = 0
    for _ in range(KILLS):
        here, there = FORK.Pipe(duplex=False)
        child = FORK.Process(target=save_for_ever, args=(path, done, there))
        child.start()
        there.close()
        here.recv()
        time.sleep(chance.uniform(0, 0.03))
        child.kill()
        child.join()
        last = done + 1
        with suppress(EOFError):
            while True:
                last = here.recv()
        here.close()
        interrupted += (path / "state.pt.tmp").exists()
        with RunFolder.resume(path, CONFIG) as folder:
            state = RunFolder.read_state(path, "cpu")
            assert state is not None
            assert torch.equal(state["weights"], torch.full((30_000,), float(state["step"])))
            assert last <= state["step"] <= last + 1
            done = state["step"]
            folder.trim_log(done)
            steps = [row["step"] for row in logged(path)]
        assert steps == sorted(set(steps))
        assert done - 1 <= steps[-1] <= done
    assert interrupted  # some kills did fall into a save
    assert child.exitcode == -signal.SIGKILL


@forks
@pytest.mark.parametrize("with_child", [False, True])
def test_second_process_is_refused_until_the_first_is_killed(tmp_path: Path, with_child: bool) -> None:
    path = begun(tmp_path / "a")
    here, there = FORK.Pipe(duplex=False)
    holder = FORK.Process(target=hold, args=(path, there, with_child))
    holder.start()
    child = here.recv()
    try:
        for make in (RunFolder.resume, RunFolder.create):
            with pytest.raises(RunError, match=rf"a is in use by process {holder.pid}; wait"):
                make(path, CONFIG)
        (path / ".lock").write_text("")
        with pytest.raises(RunError, match="in use by another process"):
            RunFolder.resume(path, CONFIG)
        holder.kill()
        holder.join()
        RunFolder.resume(path, CONFIG).close()
    finally:
        holder.kill()
        holder.join()
        if child:
            os.kill(child, signal.SIGKILL)
        here.close()
        there.close()


def test_lock_holds_within_a_process_too_and_ends_with_close(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, CONFIG), pytest.raises(RunError, match=f"process {os.getpid()}"):
        RunFolder.resume(tmp_path, CONFIG)
    RunFolder.resume(tmp_path, CONFIG).close()


def test_existing_run_is_not_overwritten_and_a_refusal_leaves_no_lock(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, CONFIG) as folder:
        folder.save_state({"step": 1})
    for _ in range(2):
        with pytest.raises(RunError, match="already holds a run; use --resume or another --out"):
            RunFolder.create(tmp_path, CONFIG)
    (tmp_path / "state.pt").rename(tmp_path / "model.safetensors")
    with pytest.raises(RunError, match="already holds a run"):
        RunFolder.create(tmp_path, CONFIG)


def test_run_killed_before_its_first_checkpoint_starts_from_the_beginning(tmp_path: Path) -> None:
    for make in (RunFolder.create, RunFolder.resume, RunFolder.create):
        with make(tmp_path, CONFIG) as folder:
            assert RunFolder.read_state(tmp_path, "cpu") is None
            assert logged(tmp_path) == []
            folder.log({"step": 1})


def test_every_different_setting_is_named(tmp_path: Path) -> None:
    begun(tmp_path)
    recipe = changed(RECIPE, "digits", {"mean": [0.5, 0.4], "components": 5})
    here = replace(CONFIG, data="folder:ä", recipe=recipe, options={"kappa": 16.0})
    with pytest.raises(RunError) as caught:
        RunFolder.resume(tmp_path, here)
    assert str(caught.value) == (
        f'{tmp_path} was begun with other settings (data: "digits" there, "folder:ä" here; '
        "mean: [0.5, 0.5] there, [0.5, 0.4] here; components: 4 there, 5 here; "
        "options.kappa: absent there, 16.0 here); resume with those or choose another --out."
    )
    RunFolder.resume(tmp_path, CONFIG).close()


def test_a_run_begun_before_a_setting_existed_goes_on_at_its_default(tmp_path: Path) -> None:
    config = begun(tmp_path) / "config.yaml"
    older = {key: value for key, value in CONFIG.mapping().items() if key not in {"sam", "options", "held_out"}}
    config.write_text(yaml.safe_dump(older))
    RunFolder.resume(tmp_path, CONFIG).close()
    with pytest.raises(RunError, match=r"\(held_out: 0.0 there, 0.1 here\)"):
        RunFolder.resume(tmp_path, replace(CONFIG, held_out=0.1))


def test_a_run_begun_with_a_setting_of_a_later_version_is_not_resumed(tmp_path: Path) -> None:
    config = begun(tmp_path) / "config.yaml"
    config.write_text(yaml.safe_dump({**CONFIG.mapping(), "added_later": 1}))
    with pytest.raises(RunError, match=r"\(added_later: 1 there, absent here\)"):
        RunFolder.resume(tmp_path, CONFIG)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"- a\n- b\n",
        b"a: [1\n",
        b"\xff\xfe\xfa",
        b"a: 2024-99-99\n",
        b"a: &a {b: *a}\n",
        b"!!python/name:os.system\n",
    ],
)
def test_damaged_config_is_told_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    begun(tmp_path)
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(RunError, match=r"config\.yaml is damaged[^\n]*$"):
        RunFolder.resume(tmp_path, CONFIG)


@pytest.mark.parametrize("name", ["absent", "empty", "file/inside"])
def test_folder_without_a_run_is_not_resumed_nor_touched(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="holds no run to resume"):
        RunFolder.resume(tmp_path / name, CONFIG)
    assert not list((tmp_path / "empty").iterdir())
    assert not (tmp_path / "absent").exists()


def test_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(RunError, match="could not be written"):
            RunFolder.create(path, CONFIG)


def test_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(RunError, match=r"cannot be locked \(No locks available\)"):
        RunFolder.create(tmp_path, CONFIG)


def test_weights_carry_the_settings(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, CONFIG) as folder:
        folder.save_weights({"a": torch.ones(2)}, {"calibration": "{}"})
    _, metadata = load_weights(tmp_path / "model.safetensors")
    assert metadata.keys() == {"calibration", "config", "schema", "sha256", "sha256_header"}
    assert RunConfig.from_mapping(json.loads(metadata["config"])) == CONFIG


def test_trimming_drops_a_torn_row_with_the_rows_after_the_checkpoint(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"note": "begin"}, *({"step": step, "loss": 0.5 / step} for step in range(1, 6))]
    with RunFolder.create(tmp_path, CONFIG) as folder:
        for row in rows:
            folder.log(row)
        with (tmp_path / "log.jsonl").open("ab") as stream:
            stream.write(b'{"step": 3}')  # whole to a parser, yet its end was never written
        folder.trim_log(3)
        assert logged(tmp_path) == rows[:4]
        folder.log({"step": 4})
        assert logged(tmp_path) == [*rows[:4], {"step": 4}]
        assert sorted(file.name for file in tmp_path.iterdir()) == [".lock", "config.yaml", "log.jsonl"]


def test_lost_log_is_empty_and_a_damaged_one_names_its_line(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, CONFIG) as folder:
        (tmp_path / "log.jsonl").write_bytes(b'{"step": 1}\n\x00\x00\n{"step": 2}\n')
        with pytest.raises(RunError, match=r"log\.jsonl is damaged in line 2"):
            folder.trim_log(1)
        (tmp_path / "log.jsonl").unlink()
        folder.trim_log(1)
        assert logged(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_full_disk_is_told_when_logging(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, CONFIG) as folder:
        (tmp_path / "log.jsonl").unlink()
        (tmp_path / "log.jsonl").symlink_to("/dev/full")
        with pytest.raises(RunError, match=r"log\.jsonl could not be written \(No space left on device\)"):
            folder.log({"step": 1})


@pytest.mark.parametrize("name", ["config.yaml", "log.jsonl"])
def test_files_of_something_else_are_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("my: own")
    with pytest.raises(RunError, match=f"{name} does not belong to a run and would be overwritten; choose another --"):
        RunFolder.create(tmp_path, CONFIG)
    assert (tmp_path / name).read_text() == "my: own"


def test_a_trained_run_without_its_checkpoint_is_not_trained_again(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", CONFIG) as folder:
        folder.log({"step": 1})
        folder.save_weights({"weight": torch.zeros(1)}, {})
    with pytest.raises(RunError, match="is trained and its checkpoint is gone, so there is nothing to resume"):
        RunFolder.resume(tmp_path / "run", CONFIG)
    assert (tmp_path / "run" / "log.jsonl").read_text() == '{"step": 1}\n'


def two_states(path: Path) -> RunFolder:
    folder = RunFolder.create(path, CONFIG)
    for step in (1, 2):
        folder.save_state({"step": step, "weights": torch.full((30_000,), float(step))})
    return folder


def step_of(state: dict[str, Any] | None) -> object:
    return None if state is None else state["step"]


@pytest.mark.parametrize("links", [True, False])
def test_the_checkpoint_before_the_newest_stays_until_the_run_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refused)
    with two_states(tmp_path) as folder:
        first = (tmp_path / "state.former.pt").stat().st_ino
        assert step_of(RunFolder.read_state(tmp_path, "cpu", "state.former.pt")) == 1
        folder.save_state({"step": 3})
        assert step_of(RunFolder.read_state(tmp_path, "cpu", "state.former.pt")) == 2
        assert step_of(RunFolder.read_state(tmp_path, "cpu")) == 3
        assert (tmp_path / "state.former.pt").stat().st_ino != first
        folder.finish()
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "config.yaml", "log.jsonl", "state.pt"]


def test_no_byte_of_a_checkpoint_is_copied_to_keep_it(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, CONFIG) as folder:
        folder.save_state({"step": 1})
        first = (tmp_path / "state.pt").stat().st_ino
        folder.save_state({"step": 2})
        assert (tmp_path / "state.former.pt").stat().st_ino == first


def rot(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {"damaged": rot, "missing": Path.unlink}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_ruined_checkpoint_costs_an_interval_and_not_the_run(tmp_path: Path, damage: str) -> None:
    said: list[str] = []
    two_states(tmp_path).close()
    DAMAGES[damage](tmp_path / "state.pt")
    with RunFolder.resume(tmp_path, CONFIG) as folder:
        assert step_of(folder.load_state("cpu", said.append)) == 1
        assert said == [f"{tmp_path / 'state.pt'} is {damage}, so the run goes on from the checkpoint before it."]
        assert step_of(RunFolder.read_state(tmp_path, "cpu")) == 1, "the ruined one is never kept as the former"
        folder.save_state({"step": 2})
        assert step_of(RunFolder.read_state(tmp_path, "cpu", "state.former.pt")) == 1


def test_two_ruined_checkpoints_are_told(tmp_path: Path) -> None:
    two_states(tmp_path).close()
    rot(tmp_path / "state.former.pt")
    with RunFolder.resume(tmp_path, CONFIG) as folder:
        assert step_of(folder.load_state("cpu")) == 2
    rot(tmp_path / "state.pt")
    with (
        RunFolder.resume(tmp_path, CONFIG) as folder,
        pytest.raises(RunError, match=r"neither .*state\.pt nor state\.former\.pt beside it is a whole checkpoint"),
    ):
        folder.load_state("cpu")
    (tmp_path / "state.former.pt").unlink()
    with RunFolder.resume(tmp_path, CONFIG) as folder, pytest.raises(RunError, match=r"state\.pt is not a whole"):
        folder.load_state("cpu")


def test_a_run_of_which_only_the_former_checkpoint_is_left_is_not_begun_anew(tmp_path: Path) -> None:
    two_states(tmp_path).close()
    (tmp_path / "state.pt").unlink()
    with pytest.raises(RunError, match="already holds a run"):
        RunFolder.create(tmp_path, CONFIG)


def test_the_checkpoint_of_another_run_is_refused_and_the_differences_named(tmp_path: Path) -> None:
    other = replace(CONFIG, seed=1, recipe=changed(RECIPE, "digits", {"peak_rate": 0.5}))
    with RunFolder.create(tmp_path / "other", other) as folder:
        folder.save_state({"step": 7})
    with two_states(tmp_path / "run") as folder:
        os.replace(tmp_path / "other" / "state.pt", tmp_path / "run" / "state.pt")
        with pytest.raises(RunError) as caught:
            folder.load_state("cpu")
    assert str(caught.value) == (
        f"{tmp_path / 'run' / 'state.pt'} is the checkpoint of another run (seed: 1 there, 0 here; peak_rate: 0.5 "
        f"there, {RECIPE.peak_rate} here); bring back that of this run, or choose another --out."
    )


def test_a_checkpoint_of_a_setting_that_came_later_is_of_the_same_run_at_its_default(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, CONFIG) as folder:
        folder.save_state({"step": 1})
        state = RunFolder.read_state(tmp_path, "cpu")
        assert state is not None
        older = {key: value for key, value in json.loads(state["config"]).items() if key not in {"sam", "held_out"}}
        checkpoint.save_state(tmp_path / "state.pt", {**state, "config": json.dumps(older)})
        assert step_of(folder.load_state("cpu")) == 1


@pytest.mark.parametrize("config", ["[]", "{", '"text"', "{}", 5])
def test_a_checkpoint_that_does_not_say_whose_it_is_is_refused(tmp_path: Path, config: object) -> None:
    with RunFolder.create(tmp_path, CONFIG) as folder:
        checkpoint.save_state(tmp_path / "state.pt", {"step": 1, "config": config})
        with pytest.raises(RunError, match=r"state\.pt does not say which run it is of"):
            folder.load_state("cpu")


def test_a_checkpoint_of_an_earlier_version_is_used_with_a_sentence(tmp_path: Path) -> None:
    said: list[str] = []
    with RunFolder.create(tmp_path, CONFIG) as folder:
        checkpoint.save_state(tmp_path / "state.pt", {"step": 1})
        assert step_of(folder.load_state("cpu", said.append)) == 1
    assert said == [
        f"{tmp_path / 'state.pt'} is from an earlier dsui, so it cannot be checked whether it is of this run."
    ]


def test_what_a_discarded_run_leaves_to_the_next_is_not_removed(tmp_path: Path) -> None:
    """The next one comes between the removal of the lock and that of the folder."""
    path = tmp_path / "run"
    folder = RunFolder.create(path, CONFIG)
    rmdir = Path.rmdir

    def late(self: Path) -> None:
        RunFolder.create(self, CONFIG).close()
        rmdir(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rmdir", late)
        folder.discard()
    RunFolder.resume(path, CONFIG).close()


def test_a_folder_that_is_removed_while_a_run_begins_in_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = files.lock_or_refuse

    def late(path: Path) -> files.LockFile:
        monkeypatch.undo()
        path.parent.rmdir()
        return lock(path)

    monkeypatch.setattr("dsui.runs.folder.lock_or_refuse", late)
    RunFolder.create(tmp_path / "run", CONFIG).close()
    RunFolder.resume(tmp_path / "run", CONFIG).close()


def test_a_folder_that_is_removed_while_it_is_looked_at_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def there_and_gone(*_: object) -> None:
        monkeypatch.setattr(os, "mkdir", make)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "mkdir", there_and_gone)
    RunFolder.create(tmp_path / "run", CONFIG).close()
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"file could not be written \(File exists\)"):
        RunFolder.create(tmp_path / "file", CONFIG)


def test_a_folder_with_the_files_of_another_program_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("its own")
    with pytest.raises(RunError, match=r"log\.jsonl does not belong to a run and would be overwritten"):
        RunFolder.create(tmp_path, CONFIG)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"log.jsonl": "its own"}
