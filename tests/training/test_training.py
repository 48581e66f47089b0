"""Runs that are trained, killed, stopped, resumed and refused, on the embedded digits."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from dsui.cli import app
from dsui.data.dataset import ImageSet, MemorySet, subset
from dsui.data.registry import load
from dsui.errors import DivergenceError, DsuiError, RunError
from dsui.runs import checkpoint
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe
from dsui.runs.weights import load_weights
from dsui.training.distributed import World
from dsui.training.loop import InterruptedRun, fit
from dsui.training.reporter import SilentReporter
from dsui.training.schedule import rates
from dsui.training.step import TrainingStep
from dsui.training.trainer import Trainer
from tests.support import forked

CPU = torch.device("cpu")
EVERYTHING: dict[str, Any] = {  # a state in every part: moments, an average, dropout, a warm-up that ends in EM
    "epochs": 4,
    "neck": True,
    "dropout": 0.2,
    "average": "ema",
    "ema_decay": 0.9,
    "density_warm_up": 1,
    "initialize": True,
    "padding": 1,
    "flip": True,
}


def config(method: str = "dsui", seed: int = 0, **settings: Any) -> RunConfig:
    return RunConfig(
        data="digits",
        backbone="small",
        method=method,
        seed=seed,
        size=8,
        channels=1,
        recipe=load_recipe("demo", "digits", settings),
    )


def trained(
    out: Path, run: RunConfig, resume: bool = False, pause: float = 60.0, images: ImageSet | None = None
) -> Trainer:
    images = images or load("digits", "train")
    return fit(run, images, out, CPU, World(), SilentReporter(), resume=resume, checkpoint_seconds=pause)


def test_accuracy(trainer: Trainer) -> float:
    images = load("digits", "test")
    with torch.no_grad():
        logits = trainer.method.logits(
            trainer.method(trainer.transform.plain(images.read(torch.arange(len(images.labels)))))
        )
    return (logits.argmax(1) == images.labels).double().mean().item()


test_accuracy.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["dsui", "msp"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"average": "swa", "swa_start": 0.5, "sam": 0.05, "clip": 1.0},
        {"optimizer": "sgd", "peak_rate": 0.05, "momentum": 0.9, "nesterov": True, "neck": True, "dropout": 0.2},
        {"average": "ema", "ema_decay": 0.95, "density_warm_up": 2},
    ],
)
def test_recipes_learn(tmp_path: Path, method: str, settings: dict[str, Any]) -> None:
    trainer = trained(tmp_path / "run", config(method, epochs=8, **settings))
    assert test_accuracy(trainer) > 0.95  # 0.973 to 0.985 when written
    weights, metadata = load_weights(tmp_path / "run" / "model.safetensors")
    assert json.loads(metadata["config"])["method"] == method
    twin = Trainer(config(method, epochs=8, **settings), load("digits", "train"), CPU, World())
    twin.method.load_state_dict(weights)
    assert test_accuracy(twin_in_evaluation(twin)) == test_accuracy(trainer)


def twin_in_evaluation(trainer: Trainer) -> Trainer:
    trainer.method.eval()
    return trainer


def test_the_log_has_a_row_per_epoch_with_figures_and_component_usage(tmp_path: Path) -> None:
    trained(tmp_path / "run", config(epochs=3))
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert [row["step"] for row in rows] == [15, 30, 45]
    assert rows[2]["loss"] < rows[0]["loss"]
    assert 0 < rows[0]["accuracy"] <= 1
    for key in ("cross_entropy", "dual", "regularizer", "component_usage", "alive", "logit_scale", "seconds"):
        assert key in rows[0]


COMMAND = ["train", "--data", "digits", "--backbone", "small", "--recipe", "demo"]
SETTINGS = [f"--set={key}={json.dumps(value)}" for key, value in EVERYTHING.items()]


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_weights(run / "model.safetensors")[0]


def last_save(run: Path) -> int:
    return (run / "state.pt").stat().st_mtime_ns if (run / "state.pt").exists() else 0


def epochs_logged(run: Path) -> int:
    return len((run / "log.jsonl").read_text().splitlines()) if (run / "log.jsonl").exists() else 0


@pytest.mark.parametrize(
    ("trial", "most"), [(0, 3), *(pytest.param(trial, 4, marks=pytest.mark.soak) for trial in range(1, 26))]
)
def test_killed_run_resumes_to_the_same_bits(tmp_path: Path, trial: int, most: int) -> None:
    """SIGKILL at random moments, many checkpoints, and at the end the weights and log of an undisturbed run."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    command = [*COMMAND, *SETTINGS, "--calibration", "0.1", "--quiet", "--checkpoint-seconds", "0.01", "--out"]
    undisturbed = forked.command(*command, str(whole))
    undisturbed.join()
    assert undisturbed.exitcode == 0
    kills, chance = 0, random.Random(trial)  # noqa: S311
    for attempt in range(40):
        resume = ["--resume"] if (broken / "config.yaml").exists() else []
        process = forked.command(*command, str(broken), *resume)
        if kills < most:
            began = last_save(broken)
            while process.is_alive():  # until it has saved in epoch 0, 1 or 2, and a random moment longer
                if last_save(broken) > began and epochs_logged(broken) >= kills:
                    time.sleep(chance.uniform(0, 0.3))
                    break
                time.sleep(0.005)
            process.kill()
        process.join()
        if process.exitcode == 0:
            break
        kills += 1
        assert attempt < 39
    assert kills >= 1
    ours, theirs = weights_of(broken), weights_of(whole)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    logs = [[json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()] for run in (broken, whole)]
    for row in (*logs[0], *logs[1]):
        del row["seconds"]
    assert logs[0] == logs[1]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """What an undisturbed run with a state in every part ends as, on a few of the images."""
    out, few = tmp_path_factory.mktemp("everything") / "run", load("digits-256", "train")
    trainer = trained(out, config(**EVERYTHING), images=few)
    return trainer.method.state_dict()


def test_stopping_saves_and_says_how_to_go_on(tmp_path: Path, everything: dict[str, Tensor]) -> None:
    class StopAfterSecondEpoch(SilentReporter):
        def epoch(self, row: dict[str, object]) -> None:
            if row["epoch"] == 1:  # after the warm-up, which must not end a second time
                os.kill(os.getpid(), signal.SIGINT)

    run, few = config(**EVERYTHING), load("digits-256", "train")
    with pytest.raises(InterruptedRun, match=r"stopped after step 8 of 16; go on with the same command and --resume"):
        fit(run, few, tmp_path / "run", CPU, World(), StopAfterSecondEpoch())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = trained(tmp_path / "run", run, resume=True, images=few)
    for ours, theirs in zip(resumed.method.state_dict().values(), everything.values(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_run_whose_time_is_over_is_saved_and_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    run, images = config(epochs=1, average="ema", ema_decay=0.95), load("digits", "train")
    with pytest.raises(InterruptedRun, match="stopped after step 1 of 15; go on with the same command"):
        fit(run, images, tmp_path / "run", CPU, World(), SilentReporter(), stop_at=time.time())
    resumed = trained(tmp_path / "run", run, resume=True)
    straight = trained(tmp_path / "straight", run)
    for ours, theirs in zip(resumed.method.state_dict().values(), straight.method.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_finished_run_resumes_to_itself_and_is_not_overwritten(tmp_path: Path) -> None:
    run = config(epochs=1)
    trained(tmp_path / "run", run)
    before = weights_of(tmp_path / "run")
    trained(tmp_path / "run", run, resume=True)
    assert all(torch.equal(value, before[name]) for name, value in weights_of(tmp_path / "run").items())
    with pytest.raises(RunError, match="already holds a run; use --resume or another --out"):
        trained(tmp_path / "run", run)
    with pytest.raises(
        RunError, match=r"epochs: 1 there, 2 here.*seed: 0 there, 1 here|seed: 0 there, 1 here.*epochs: 1"
    ):
        trained(tmp_path / "run", config(seed=1, epochs=2), resume=True)


def test_a_diverging_loss_stops_the_run_and_names_the_step(tmp_path: Path) -> None:
    wild = config("msp", optimizer="sgd", peak_rate=1e12, epochs=2, rate_warm_up=0)
    with pytest.raises(DivergenceError, match=r"the loss of step \d+ \(epoch 1\) is not a number or beyond 1e\+06"):
        trained(tmp_path / "wild", wild)
    assert not (tmp_path / "wild" / "model.safetensors").exists()


def test_weights_that_an_update_ruined_are_never_saved_and_the_run_goes_on_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = config("msp", optimizer="sgd", epochs=2)
    straight = trained(tmp_path / "straight", run)

    def exploding(*args: Any) -> Tensor:
        table = rates(*args).clone()
        table[10:] = 1e12
        return table

    monkeypatch.setattr("dsui.training.trainer.rates", exploding)
    monkeypatch.setattr(checkpoint.Pacer, "due", lambda *_: True)
    with pytest.raises(
        DivergenceError, match=r"a weight after step 11 is not.*last good checkpoint is of step 10; train"
    ):
        trained(tmp_path / "run", run)
    monkeypatch.undo()
    resumed = trained(tmp_path / "run", run, resume=True)
    for ours, theirs in zip(resumed.method.state_dict().values(), straight.method.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_last_update_that_ruins_the_weights_leaves_no_model(tmp_path: Path) -> None:
    wild = config("msp", optimizer="sgd", peak_rate=1e30, epochs=1, batch=1000, rate_warm_up=0)
    with pytest.raises(DivergenceError, match="a weight after step 1 is not a number or beyond"):
        trained(tmp_path / "wild", wild)
    assert not (tmp_path / "wild" / "model.safetensors").exists()


def test_averaging_late_begins_before_the_end_of_a_short_run(tmp_path: Path) -> None:
    averaged = trained(tmp_path / "run", config("msp", epochs=2, average="swa"))
    assert averaged.average is not None
    assert averaged.average.state_dict()["updates"] == 1


def test_normalisation_for_another_number_of_channels_is_told(tmp_path: Path) -> None:
    with pytest.raises(DsuiError, match="mean and std have 3 numbers and the images have 1 channels; give one"):
        trained(tmp_path / "run", config(mean=[0.4, 0.5, 0.6], std=[0.2, 0.2, 0.2]))


def test_a_checkpoint_of_another_network_is_told(tmp_path: Path) -> None:
    run = config(epochs=1)
    trained(tmp_path / "run", run)
    state = checkpoint.load_state(tmp_path / "run" / "state.pt", CPU)
    assert state is not None
    del state["images"]  # as before checkpoints held it
    checkpoint.save_state(tmp_path / "run" / "state.pt", state)
    trained(tmp_path / "run", run, resume=True)
    state["model"]["strange"] = torch.zeros(1)
    checkpoint.save_state(tmp_path / "run" / "state.pt", state)
    with pytest.raises(RunError, match="holds another network than this version of dsui builds"):
        trained(tmp_path / "run", run, resume=True)


def test_the_paper_loss_says_once_in_which_epoch_it_begins_to_diverge(tmp_path: Path) -> None:
    run, said = config(objective="literal", epochs=6, peak_rate=0.02), []

    class Listening(SilentReporter):
        def epoch(self, row: dict[str, object]) -> None:
            said.append(row.get("warning"))
            if row["epoch"] == 3:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedRun):
        fit(run, load("digits", "train"), tmp_path / "run", CPU, World(), Listening())
    fit(run, load("digits", "train"), tmp_path / "run", CPU, World(), Listening(), resume=True)
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [row.get("warning") for row in rows] == said, "and not again after the run is resumed"
    (told,) = [row for row in rows if "warning" in row]
    assert 0 < told["epoch"] <= 3
    assert told["warning"].startswith(f"In epoch {told['epoch'] + 1} the literal objective diverges: ")
    before = [row["own_log_density"] for row in rows[: told["epoch"]]]
    assert told["own_log_density"] < max(before) - 0.01 <= before[-1]
    trained(tmp_path / "pull", config(objective="literal", rho=0.0, epochs=3))
    assert "warning" not in (tmp_path / "pull" / "log.jsonl").read_text(), "the pull alone learns"


def test_what_a_method_said_is_the_advice_when_its_run_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsui.training.meter.LARGEST_LOSS", 1e5)
    run = config(objective="literal", epochs=30, peak_rate=0.03)
    with pytest.raises(DivergenceError, match=r"is not a number or beyond.*literal objective diverges: .*objective=b"):
        trained(tmp_path / "run", run)


def test_the_paper_loss_stops_with_its_own_sentence(tmp_path: Path) -> None:
    run = config(objective="literal", peak_rate=0.1, rate_warm_up=0)
    with pytest.raises(DivergenceError, match=r"literal objective diverged|is not a number or beyond"):
        trained(tmp_path / "run", run)


def test_a_batch_larger_than_the_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(DsuiError, match="has 1000 training images, fewer than one batch of 4096"):
        trained(tmp_path / "run", config(batch=4096))


def test_a_run_that_did_not_begin_leaves_nothing_but_what_was_there(tmp_path: Path) -> None:
    for place in (tmp_path / "new", tmp_path / "there"):
        (tmp_path / "there").mkdir(exist_ok=True)
        with pytest.raises(DsuiError, match="fewer than one batch"):
            trained(place, config(batch=4096))
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    run = config(epochs=1)
    trained(tmp_path / "there", run)
    weights = (tmp_path / "there" / "model.safetensors").read_bytes()
    with pytest.raises(DsuiError, match="already holds a run"):
        trained(tmp_path / "there", run)
    assert (tmp_path / "there" / "model.safetensors").read_bytes() == weights
    assert (tmp_path / "there" / "config.yaml").exists()


def test_streamed_and_resident_images_train_the_same_weights(tmp_path: Path) -> None:
    images, run = load("digits", "train"), config(epochs=1)
    resident = fit(run, images, tmp_path / "a", CPU, World(), SilentReporter())
    streamed = fit(run, images, tmp_path / "b", CPU, World(), SilentReporter(), memory_budget=0)
    for ours, theirs in zip(resident.method.state_dict().values(), streamed.method.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_batch_that_does_not_fit_into_memory_names_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = TrainingStep.__call__

    def limited(step: TrainingStep, *batches: Any) -> None:
        if step.recipe.batch > 20:
            raise torch.cuda.OutOfMemoryError("out of memory")
        take(step, *batches)

    monkeypatch.setattr(TrainingStep, "__call__", limited)
    with pytest.raises(DsuiError, match=r"a batch of 64 does not fit into the memory of cpu; a batch of 16 fits"):
        trained(tmp_path / "run", config())
    trained(tmp_path / "run", config(batch=16, epochs=1))  # the folder is free again


def test_tensorboard_gets_every_epoch_or_its_absence_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, float, int]] = []

    class Writer:
        def __init__(self, folder: Path) -> None:
            self.folder = folder

        def add_scalar(self, *row: Any) -> None:
            written.append(row)

        def flush(self) -> None: ...

    arguments = ["train", "--data", "digits", "--backbone", "small", "--recipe", "demo", "--set", "epochs=2"]
    arguments += ["--quiet", "--tensorboard", "--out"]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    assert CliRunner().invoke(app, [*arguments, str(tmp_path / "a")]).exit_code == 0
    assert [step for name, _, step in written if name == "loss"] == [15, 30]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "b")])
    assert "--tensorboard needs the package tensorboard" in str(result.exception)


def stopped_after_two_epochs(out: Path, run: RunConfig, images: ImageSet | None = None) -> None:
    images = images or load("digits", "train")

    class StopAfterSecondEpoch(SilentReporter):
        def epoch(self, row: dict[str, object]) -> None:
            if row["epoch"] == 1:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedRun):
        fit(run, images, out, CPU, World(), StopAfterSecondEpoch(), checkpoint_seconds=0.0)


class Listening(SilentReporter):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def note(self, sentence: str) -> None:
        self.heard.append(sentence)


def test_a_run_with_a_ruined_checkpoint_goes_on_from_the_one_before_to_the_same_bits(
    tmp_path: Path, everything: dict[str, Tensor]
) -> None:
    run, reporter, few = config(**EVERYTHING), Listening(), load("digits-256", "train")
    stopped_after_two_epochs(tmp_path / "run", run, few)
    state = tmp_path / "run" / "state.pt"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    resumed = fit(run, few, tmp_path / "run", CPU, World(), reporter, resume=True)
    assert reporter.heard == [f"{state} is damaged, so the run goes on from the checkpoint before it."]
    for ours, theirs in zip(resumed.method.state_dict().values(), everything.values(), strict=True):
        assert torch.equal(ours, theirs)
    assert epochs_logged(tmp_path / "run") == 4
    assert not (tmp_path / "run" / "state.former.pt").exists(), "a finished run keeps one"


NO_STEPS = (-1, 10**30, 2.0, True, "15", None)


def test_a_checkpoint_of_another_run_is_not_finished_under_this_ones_config(tmp_path: Path) -> None:
    stopped_after_two_epochs(tmp_path / "other", config(seed=1, epochs=4, rho=0.5))
    stopped_after_two_epochs(tmp_path / "run", config(epochs=4))
    os.replace(tmp_path / "other" / "state.pt", tmp_path / "run" / "state.pt")
    with pytest.raises(RunError, match=r"the checkpoint of another run \(seed: 1 there, 0 here; .*rho: 0.5 there"):
        trained(tmp_path / "run", config(epochs=4), resume=True)
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [(16, "the checkpoint is of step 16 and this run has 15 steps; bring back its own")]
    + [(steps, r"not one of this version of dsui \(steps is .*; it must be a whole number") for steps in NO_STEPS],
)
def test_a_checkpoint_of_a_step_that_the_run_does_not_have_is_refused(steps: object, sentence: str) -> None:
    trainer = Trainer(config(epochs=1), load("digits", "train"), CPU, World())
    trainer.load(trainer.state())
    with pytest.raises(RunError, match=sentence):
        trainer.load({**trainer.state(), "steps": steps})


@pytest.mark.parametrize("part", ["model", "optimizers", "average", "meter", "steps", "phase"])
def test_a_checkpoint_that_lacks_a_part_is_refused(part: str) -> None:
    trainer = Trainer(config(epochs=1), load("digits", "train"), CPU, World())
    state = trainer.state()
    del state[part]
    with pytest.raises(RunError, match=f"the checkpoint is not one of this version of dsui .{part} is absent"):
        trainer.load(state)


def test_a_run_that_goes_on_elsewhere_is_told_that_its_bits_will_differ(tmp_path: Path) -> None:
    run, reporter = config(epochs=3), Listening()
    stopped_after_two_epochs(tmp_path, run)
    state = checkpoint.load_state(tmp_path / "state.pt", CPU)
    assert state is not None
    state["place"] = {**state["place"], "processes": 2}
    checkpoint.save_state(tmp_path / "state.pt", state)
    fit(run, load("digits", "train"), tmp_path, CPU, World(), reporter, resume=True)
    assert reporter.heard == [
        "the run goes on in another place (processes 2 before, 1 now), so its weights will not be those of a run that "
        "was never stopped, bit for bit."
    ]


def test_a_run_whose_images_have_changed_is_not_resumed(tmp_path: Path) -> None:
    trained(tmp_path, config(epochs=1))
    whole = load("digits", "train")
    fewer = subset(whole, torch.arange(len(whole.labels) - 1), whole.name)
    with pytest.raises(DsuiError, match="the images of digits are not those this run was begun with"):
        fit(config(epochs=1), fewer, tmp_path, CPU, World(), SilentReporter(), resume=True)


def test_the_callers_random_numbers_go_on_as_if_nothing_had_been_trained(tmp_path: Path) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    trained(tmp_path, config(epochs=1))
    assert torch.equal(torch.rand(3), expected)


def test_what_must_stay_uncompiled_is_settled_before_a_model_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def compiled(module: torch.nn.Module) -> torch.nn.Module:
        order.append("compiled")
        return module

    monkeypatch.setattr("dsui.training.step.ready_to_compile", lambda: order.append("settled"))
    monkeypatch.setattr(torch, "compile", compiled)
    Trainer(config(epochs=1), load("digits", "train"), CPU, World(), mode="compiled")
    assert order == ["settled", "compiled"]


def test_steps_beyond_the_last_take_its_rate() -> None:
    """As those before the capture of a CUDA graph do when few steps are left."""
    trainer = Trainer(config(epochs=1), load("digits", "train"), CPU, World())
    for _ in trainer.epoch_steps(0, 0):
        pass
    trainer.step()
    assert trainer.step.counter == trainer.total_steps + 1


def test_an_average_forgets_what_was_before_a_phase() -> None:
    run = config(epochs=2, density_warm_up=1, initialize=True, average="ema", ema_decay=0.999)
    trainer = Trainer(run, load("digits", "train"), CPU, World())
    for _ in trainer.epoch_steps(0, 0):
        pass
    next(trainer.epoch_steps(1, 0))
    assert trainer.average is not None
    assert trainer.average.state_dict()["updates"] == 1


def test_norms_of_averaged_weights_are_estimated_with_the_outliers() -> None:
    whole = load("digits", "train")
    assert isinstance(whole, MemorySet)
    white = torch.full_like(whole.images[:50], 255)
    foreign = MemorySet("white", ("white",), white, torch.zeros(50, dtype=torch.int64))
    trainer = Trainer(config("dpn", epochs=1, average="ema"), whole, CPU, World(), outliers=foreign)
    batches = list(trainer._inputs(1))
    assert {len(images) for images in batches} == {2 * trainer.recipe.batch}
    own, others = batches[0].flatten(1).mean(1).chunk(2)
    assert others.min() > own.max()


def test_one_class_is_not_enough() -> None:
    whole = load("digits", "train")
    assert isinstance(whole, MemorySet)
    one = MemorySet("ones", ("one",), whole.images, torch.zeros_like(whole.labels))
    with pytest.raises(DsuiError, match="ones has one class, one; a classifier needs two or more"):
        Trainer(config(epochs=1), one, CPU, World())
