"""Several real processes on one run: killed trainings, two trainings of a folder, two evaluations, two predictions."""

from __future__ import annotations

import csv
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from dsui.data.registry import load
from dsui.errors import RunError
from dsui.evaluation.cache import OutputCache
from dsui.evaluation.results import read
from dsui.evaluation.sources import ImageSources
from dsui.runs.config import RunConfig
from dsui.runs.model import run_facts
from dsui.runs.weights import load_weights
from dsui.training.distributed import World
from dsui.training.loop import fit
from dsui.training.reporter import SilentReporter
from tests.support.command_line import dsui
from tests.support.digit_runs import CPU, digit_config, own_copy, run
from tests.support.racing import at_once, forks, rounds, started

pytestmark = forks
MOST_KILLS = 3
EVERYTHING = digit_config(
    "dsui",
    epochs=4,
    neck=True,
    dropout=0.2,
    average="ema",
    ema_decay=0.9,
    density_warm_up=1,
    initialize=True,
    padding=1,
    flip=True,
)
EVERYTHING = replace(EVERYTHING, data="digits-256")
"""A state in every part: moments, an average, dropout, a warm-up that ends in EM."""


def train(out: Path, config: RunConfig) -> None:
    resume = (out / "config.yaml").exists()
    fit(config, load(config.data, "train"), out, CPU, World(), SilentReporter(), resume=resume, checkpoint_seconds=0.0)


def weights(run: Path) -> dict[str, Tensor]:
    return load_weights(run / "model.safetensors")[0]


def epochs(run: Path) -> int:
    return len((run / "log.jsonl").read_bytes().splitlines())


@rounds(1, 200)
def test_runs_killed_at_random_moments_reach_the_bits_of_one_that_was_not(tmp_path: Path, times: int) -> None:
    straight, chance, kills = tmp_path / "straight", random.Random(times), 0  # noqa: S311
    train(tmp_path / "first", EVERYTHING)  # imports what forked processes then have
    began = time.monotonic()
    train(straight, EVERYTHING)
    longest, expected = time.monotonic() - began, weights(straight)
    for trial in range(times):
        out = tmp_path / str(trial)
        for attempt in range(MOST_KILLS + 1):
            process = started(lambda _, out=out: train(out, EVERYTHING), 0)  # type: ignore[misc]
            if attempt < MOST_KILLS:
                process.join(chance.uniform(0, longest))
                process.kill()
            process.join()
            kills += process.exitcode != 0
            if process.exitcode == 0:
                break
        assert process.exitcode == 0
        found = weights(out)
        assert found.keys() == expected.keys()
        assert [name for name in found if not torch.equal(found[name], expected[name])] == []
        assert epochs(out) == epochs(straight)
        assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in straight.iterdir())
        shutil.rmtree(out)
    print(f"{times} runs, {kills} kills")
    assert kills


@rounds(2, 50)
def test_of_two_trainings_of_one_folder_one_trains(tmp_path: Path, times: int) -> None:
    config = replace(digit_config(epochs=1), data="digits-256")

    def begin(number: int) -> None:
        try:
            train(tmp_path / "run", config)
        except RunError as error:
            if "in use by" not in str(error) and "already holds a run" not in str(error):
                raise
            (tmp_path / f"refused-{number}").touch()

    train(tmp_path / "alone", config)
    expected = weights(tmp_path / "alone")
    for _ in range(times):
        assert at_once(begin, 2) == [0, 0]
        assert len(list(tmp_path.glob("refused-*"))) <= 1, "one of them trains"
        assert all(torch.equal(value, expected[name]) for name, value in weights(tmp_path / "run").items())
        assert epochs(tmp_path / "run") == 1
        shutil.rmtree(tmp_path / "run")
        for refusal in tmp_path.glob("refused-*"):
            refusal.unlink()


@rounds(3, 60)
def test_evaluations_of_one_run_at_once_compute_its_outputs_once_and_all_use_them(tmp_path: Path, times: int) -> None:
    original = run()
    facts = run_facts(own_copy(original, tmp_path / "run"))
    shutil.rmtree(facts.path / "outputs", ignore_errors=True)  # another test may have computed them
    sources = ImageSources(facts.config, facts.classes)
    with OutputCache(facts, CPU, keep=False) as alone:
        expected = alone.get(sources.noise()).whole().logits

    def evaluate(number: int) -> None:
        with OutputCache(facts, CPU) as cache:
            stored = cache.get(sources.noise(), lambda *_: (tmp_path / f"computed-{number}").touch())
            assert torch.equal(stored.whole().logits, expected)

    for _ in range(times):
        assert at_once(evaluate, 3) == [0, 0, 0]
        computed = list(tmp_path.glob("computed-*"))
        assert len(computed) == 1
        computed[0].unlink()
        shutil.rmtree(facts.path / "outputs")


@rounds(1, 20)
def test_rows_of_two_evaluate_commands_at_once_are_all_there(tmp_path: Path, times: int) -> None:
    folder = own_copy(run(), tmp_path / "run")
    command = ("evaluate", folder, "--tasks", "misclassification,noise", "--quiet")

    def evaluate(_: int) -> None:
        assert dsui(*command).exit_code == 0

    for count in range(1, times + 1):
        assert at_once(evaluate, 2) == [0, 0]
        rows, problems = read([folder / "results.jsonl"])
        assert problems == []
        assert len(rows) == 2 * count * len({(row.task, row.score, row.foreign) for row in rows})
        shutil.rmtree(folder / "outputs")


@rounds(3, 60)
def test_two_predictions_to_one_file_never_mix(tmp_path: Path, times: int) -> None:
    """Each process has images of its own; the file then holds the rows of one of them, all of them, in order."""
    folder, out = run("dsui"), tmp_path / "predictions.csv"
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        for index in range(30):
            Image.new("L", (8, 8), 8 * index).save(tmp_path / str(number) / f"{index:02d}.png")

    def predict(number: int) -> None:
        result = dsui("predict", folder, tmp_path / str(number), "--out", out, "--batch", "2", "--quiet")
        if result.exit_code:
            assert "is being written by another process" in str(result.exception)
            (tmp_path / f"refused-{number}").touch()

    for _ in range(times):
        assert at_once(predict, 2) == [0, 0]
        refused = [int(path.name[-1]) for path in tmp_path.glob("refused-*")]
        assert len(refused) <= 1
        with out.open() as stream:
            files = [Path(row["file"]) for row in csv.DictReader(stream)]
        writers = {int(file.parent.name) for file in files}
        assert len(writers) == 1
        assert not writers & set(refused)
        assert [file.name for file in files] == [f"{index:02d}.png" for index in range(30)]
        assert not list(tmp_path.glob("*.part"))
        out.unlink()
        for number in refused:
            (tmp_path / f"refused-{number}").unlink()
