"""Studies: done cells are not run again, stopped and failed ones harm no others, and the table is the paper's."""

from __future__ import annotations

import csv
import json
import os
import signal
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from dsui.data.registry import load
from dsui.evaluation.paper_tables import paper_rows
from dsui.evaluation.results import ResultRow, read
from dsui.experiments import cell_run, estimate, figure_points
from dsui.experiments.grid import Cell
from dsui.experiments.grid_file import load_grid, parsed
from dsui.experiments.study import State, Study
from dsui.experiments.study_table import columns, figure_csv, study_table
from dsui.runs.folder import LOG, STATE, WEIGHTS
from dsui.runs.model import load_model, run_facts
from dsui.training.loop import InterruptedRun, SilentReporter
from tests.support.tiny_grid import CONDITIONS, TINY, carry_out, figures, rkl_reads_msp, tiny_study  # noqa: F401

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Study:
    study = tiny_study(tmp_path_factory.mktemp("finished"))
    carry_out(study)
    study.collect()
    return study


def forbid_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: Any, **__: Any) -> None:
        raise AssertionError("a run was trained that is there already")

    monkeypatch.setattr(cell_run, "fit", train)


def row_of(cell: Cell, task: str, score: str | None, foreign: str | None, metrics: dict[str, float]) -> ResultRow:
    config = cell.config
    facts = (cell.run, cell.predictor, None, config.data, config.backbone, config.recipe.name, config.seed)
    return ResultRow(*facts, task, foreign, score, metrics, None, None, None, None, {}, None, None, None)


def accuracy_of(cell: Cell) -> ResultRow:
    return row_of(cell, "accuracy", "prediction", None, {"accuracy": 0.9})


def pretend(study: Study, cell: Cell, *rows: ResultRow) -> None:
    """Write a cell down as done with these rows."""
    record = {"rows": [json.loads(row.to_json()) for row in rows], "points": []}
    study.write(f"cells/{cell.key}.json", json.dumps(record))


def test_a_study_runs_end_to_end_and_a_second_time_nothing(finished: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, problems = read([finished.out / "results.jsonl"])
    assert not problems
    assert {row.method for row in rows} == {"msp", "rkl", "dsui"}
    assert {finished.state(cell) for cell in finished.grid.cells} == {State("done")}
    forbid_training(monkeypatch)
    assert tiny_study(finished.out).jobs(finished.grid.cells) == []
    assert carry_out(tiny_study(finished.out)) == []


def test_rows_of_changed_recipes_can_be_told_apart(finished: Study) -> None:
    assert {row.recipe for row in finished.collect()} == {"demo, epochs=2"}


def test_a_method_that_shares_weights_is_not_trained(finished: Study) -> None:
    assert len(list(finished.runs.iterdir())) == 2
    by_method = {row.method: row.run for row in finished.collect()}
    assert by_method["msp"] == by_method["rkl"]


def test_a_changed_evaluation_trains_nothing_and_a_changed_run_only_itself(
    finished: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_more = Study(tiny_study(tmp_path, TINY.replace("dsui}", "dsui, seeds: [0, 1]}")).grid, finished.out)
    (job,) = one_more.jobs(one_more.grid.cells)
    assert [(cell.predictor, cell.config.seed) for cell in job] == [("dsui", 1)]
    forbid_training(monkeypatch)
    text = TINY.replace("[misclassification]", "[misclassification, ood]") + "foreign: [photos]"
    asked_more = Study(tiny_study(tmp_path, text).grid, tmp_path, runs=finished.runs)
    assert {asked_more.state(cell).kind for cell in asked_more.grid.cells} == {"trained"}
    assert len(carry_out(asked_more)) == 3
    assert {row.foreign for row in asked_more.collect()} == {None, "photos"}


def test_a_stopped_run_is_half_done_and_goes_on_to_the_same_figures(finished: Study, tmp_path: Path) -> None:
    class Impatient(SilentReporter):
        def epoch(self, row: dict[str, object]) -> None:
            if row["epoch"] == 0:
                os.kill(os.getpid(), signal.SIGINT)

    study = tiny_study(tmp_path)
    with pytest.raises(InterruptedRun):
        carry_out(study, replace(CONDITIONS, reporter=Impatient()))
    assert study.state(study.grid.cells[0]) == State("half-done", "step 15 of 30")  # 1,000 digits in batches of 64
    assert [study.state(cell).kind for cell in study.grid.cells] == ["half-done", "half-done", "to do"]
    assert "Cells not done yet: 3 of 3." in study_table(study, quoted=False).note
    carry_out(study)
    assert "not done yet" not in study_table(study, quoted=False).note
    assert figures(study.collect()) == figures(finished.collect())


def test_detectors_of_a_grid_score_beside_the_runs_own_scores(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, TINY.replace("[misc", "[ood, misc") + "foreign: [photos]\ndetectors: [knn]\n")
    carry_out(study)
    found = {row.score: row.metrics["auroc"] for row in study.collect() if (row.method, row.task) == ("dsui", "ood")}
    assert 0.5 < found["knn"] < 1
    assert found["knn"] != found["max_probability"]


@pytest.mark.parametrize(
    "damage",
    [
        "",
        '{"rows": [',
        "[]",
        '{"rows": null, "points": []}',
        '{"rows": [], "points": []}',
        '{"rows": [{"a": 1}], "points": []}',
        '{"rows": [5], "points": []}',
        '{"error": 5}',
    ],
)
def test_a_cell_whose_file_is_damaged_is_evaluated_again_without_training(
    finished: Study, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    before = figures(finished.collect())
    forbid_training(monkeypatch)
    cell = finished.grid.cells[0]
    finished.cell_path(cell).write_text(damage)
    assert finished.state(cell) == State("trained")
    assert finished.outcome(cell) == ([], [])
    carry_out(finished)
    assert figures(finished.collect()) == before


def test_steps_run_as_the_conditions_say(tmp_path: Path) -> None:
    study = tiny_study(tmp_path)
    carry_out(study, replace(CONDITIONS, mode="graph"))
    for cell in study.grid.cells:
        assert study.state(cell).kind == "failed"
        assert "a CUDA graph needs one process on a GPU" in study.state(cell).detail


def test_a_failing_run_is_written_down_and_the_others_finish(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, TINY.replace("as: [msp, rkl]", "as: [msp, rkl], set: {epochs: 2, peak_rate: 1.0e+30}"))
    assert len(carry_out(study)) == 3
    states = {cell.predictor: study.state(cell) for cell in study.grid.cells}
    assert states["dsui"] == State("done")
    assert states["msp"].kind == states["rkl"].kind == "failed"
    assert "is not a number" in states["msp"].detail
    table = study_table(study, quoted=False)
    assert [line.label for line in table.lines] == ["msp", "rkl", "dsui"]
    assert [line.cells[0].mean is None for line in table.lines] == [True, True, False]
    assert "Failed: msp, digits, small, seed 0 and 1 more: the loss of step" in table.note
    assert len(study.jobs(study.grid.cells)) == 1  # to be tried again


def test_a_cell_that_another_process_has_done_meanwhile_does_not_fail(finished: Study) -> None:
    cell = finished.grid.cells[0]
    finished.fail(cell, "its machine was slower")
    assert finished.state(cell) == State("done")


def test_an_error_that_nobody_foresaw_fails_its_cell_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(cell: Cell, *_: Any) -> None:
        if cell.config.method == "msp":
            raise RuntimeError("CUDA error: misaligned address\nand many more lines")

    monkeypatch.setattr("dsui.experiments.study.train", train)
    monkeypatch.setattr("dsui.experiments.study.evaluate", lambda cell, *_: cell_run.Outcome([accuracy_of(cell)], []))
    study = tiny_study(tmp_path)
    carry_out(study)
    assert study.state(study.grid.cells[0]) == State("failed", "RuntimeError: CUDA error: misaligned address")
    assert "many more lines" in study.record(study.grid.cells[0])["traceback"]
    assert study.state(study.grid.cells[2]) == State("done")


def test_cells_without_data_wait_and_the_others_run(tmp_path: Path) -> None:
    text = TINY.replace("dsui}", "dsui, data: cifar10, backbone: resnet18, tasks: [ood], foreign: [svhn, photos]}")
    study = tiny_study(tmp_path, text, root=tmp_path / "data")
    assert study.state(study.grid.cells[2]) == State("data missing", "cifar10, svhn")
    assert [cell.predictor for job in study.jobs(study.grid.cells) for cell in job] == ["msp", "rkl"]
    assert "Without cifar10, svhn: dsui, cifar10, resnet18, seed 0." in study_table(study, quoted=False).note


def log(study: Study, cell: Cell, epochs: int, steps: int, seconds: float) -> None:
    run = study.run_path(cell)
    run.mkdir(parents=True)
    (run / STATE).touch()
    rows = [{"epoch": epoch, "step": (epoch + 1) * steps, "seconds": seconds} for epoch in range(epochs)]
    (run / LOG).write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"epoch": 99, "st', encoding="utf-8")


def test_time_is_estimated_from_like_runs_then_from_other_methods_else_unknown(tmp_path: Path) -> None:
    text = TINY.replace("as: [msp, rkl]", "seeds: [0, 1]").replace("{epochs: 2}", "{epochs: 10}")
    study = tiny_study(tmp_path, text)
    jobs = study.jobs(study.grid.cells)
    assert study.training_seconds(jobs) == [None] * 3
    half_done, dsui, other_seed = (job[0] for job in jobs)
    log(study, half_done, epochs=4, steps=15, seconds=3.0)
    # 3 s for 15 steps of 64 images; an epoch has 1,000
    expected = [6 * 3.0, 10 * 3.0, 10 * 3.0]
    scaled = pytest.approx([seconds * 1000 / 960 for seconds in expected], rel=1e-12)  # rounding alone
    assert study.training_seconds(jobs) == scaled
    log(study, dsui, epochs=1, steps=15, seconds=7.0)
    assert study.training_seconds(jobs)[1] == pytest.approx(9 * 7.0 * 1000 / 960, rel=1e-12)
    assert study.training_seconds(jobs)[2] == pytest.approx(10 * 3.0 * 1000 / 960, rel=1e-12)  # msp's, not dsui's
    (study.run_path(other_seed) / WEIGHTS).parent.mkdir()
    (study.run_path(other_seed) / WEIGHTS).touch()
    assert study.training_seconds(jobs)[2] == 0


@pytest.mark.parametrize(
    "damage",
    [
        b"}{\n",
        b"[1, 2]\n",
        b"\xff\xfe\n",
        b'{"epoch": null, "step": "x", "seconds": []}\n',
        b'{"epoch": 9, "step": 0, "seconds": 1.0}\n',
        b'{"epoch": 9, "step": 99, "seconds": NaN}\n',
    ],
)
def test_damaged_lines_of_a_log_are_passed_over(tmp_path: Path, damage: bytes) -> None:
    study = tiny_study(tmp_path, TINY.replace("{epochs: 2}", "{epochs: 10}"))
    cell, jobs = study.grid.cells[0], study.jobs(study.grid.cells)
    log(study, cell, epochs=4, steps=15, seconds=3.0)
    state, seconds = study.state(cell), study.training_seconds(jobs)
    path = study.run_path(cell) / LOG
    path.write_bytes(damage + path.read_bytes() + b"\n" + damage)
    assert study.state(cell) == state == State("half-done", "step 60 of 150")
    assert study.training_seconds(jobs) == seconds


def test_fewer_classes_and_held_out_images_take_less_time() -> None:
    config = load_grid("open-set").cells[0].config
    assert (config.data, config.known) == ("cifar10", "neal-0")
    assert estimate.training_count(config) == 30_000
    assert estimate.training_count(replace(config, known="cat,dog", held_out=0.1)) == 9_000
    assert estimate.training_count(replace(config, known=None)) == 50_000
    assert estimate.training_count(replace(config, data="folder:mine")) is None


def test_the_accuracy_table_is_table_2_and_dashes_stand_where_the_paper_has_them(tmp_path: Path) -> None:
    study = Study(load_grid("accuracy"), tmp_path)
    printed = {(row.method, row.data, row.backbone): row.metrics["accuracy"] for row in paper_rows("table2")}
    for cell in study.grid.cells:
        mean = printed[cell.predictor, cell.config.data, cell.config.backbone]
        off = 0.001 * (cell.config.seed - 2)
        pretend(study, cell, row_of(cell, "accuracy", "prediction", None, {"accuracy": mean + off}))
    table = study_table(study, quoted=True)
    assert [column.header for column in table.columns] == [
        (data, backbone, "accuracy")
        for data in ("cifar10", "cifar100", "svhn", "tiny-imagenet")
        for backbone in ("vgg16", "resnet18")
    ]
    methods = ["msp", "mc-dropout", "dpn", "rkl", "sde-net", "dsui"]
    assert [(line.label, line.quoted) for line in table.lines] == [
        (m, quoted) for quoted in (False, True) for m in methods
    ]
    for own, quoted in zip(table.lines[:6], table.lines[6:], strict=True):
        for here, there in zip(own.cells, quoted.cells, strict=True):
            assert (here.mean is None) == (there.mean is None)
            assert here.mean is None or here.mean == pytest.approx(there.mean, abs=1e-12)  # summing five floats
    assert not any(line.quoted for line in study_table(study, quoted=False).lines)


def test_ablation_lines_stay_apart_and_are_tested_against_the_whole(tmp_path: Path) -> None:
    study = Study(load_grid("ablation"), tmp_path)
    for cell in study.grid.cells:
        accuracy = 0.9 + 0.01 * int(str(cell.config.recipe.method_options["components"])) + 1e-4 * cell.config.seed
        pretend(study, cell, row_of(cell, "accuracy", "prediction", None, {"accuracy": accuracy}))
    table = study_table(study, quoted=True)
    assert len(table.lines) == 8 + 8
    assert table.lines[0].label == "dsui (K 1, push, reg)"
    assert table.lines[0].cells[0].mark == "✓"
    assert table.lines[3].cells[0].mark is None  # the reference itself
    assert [column.header[-1] for column in table.columns] == ["accuracy", "AUROC", "AUROC", "AUPR", "AUPR"]


def test_open_set_splits_are_the_five_runs_of_a_line(tmp_path: Path) -> None:
    study = Study(load_grid("open-set"), tmp_path)
    for cell in study.grid.cells:
        pretend(study, cell, row_of(cell, "open-set", "entropy", "unknown", {"auroc": 0.7, "aupr": 0.6}))
    table = study_table(study, quoted=True)
    assert len(table.columns) == 2 * (2 * 2 + 3)
    assert {cell.runs for line in table.lines if not line.quoted for cell in line.cells if cell.mean} == {5}
    assert [line.label for line in table.lines if line.quoted][-1] == "dsui"
    assert len([line for line in table.lines if line.quoted]) == 7


def test_a_curve_has_mean_and_deviation_for_each_method_and_x(tmp_path: Path) -> None:
    study = Study(load_grid("ood-pairs"), tmp_path)
    for cell in study.grid.cells:
        metrics = {"auroc": 0.8 + 0.01 * cell.config.seed, "aupr": 0.5}
        pretend(study, cell, *(row_of(cell, "ood", "entropy", name, metrics) for name in cell.foreign))
    rows = list(csv.DictReader(figure_csv(study, study_table(study, quoted=True)).splitlines()))
    assert len({row["x"] for row in rows}) == 10
    assert len(rows) == (6 * 10 - 2 * 3) * 2  # DPN and SDE-Net are not trained on Tiny ImageNet; AUROC and AUPR
    one = next(row for row in rows if (row["method"], row["x"], row["metric"]) == ("dsui", "cifar10 → svhn", "auroc"))
    assert float(one["mean"]) == pytest.approx(0.82, abs=1e-12)  # summing five floats
    assert float(one["deviation"]) == pytest.approx(0.01 * 2.5**0.5, abs=1e-12)  # of 0 to 4, with n - 1
    assert one["runs"] == "5"


def test_every_table_has_the_columns_its_grid_names() -> None:
    counts = {"noise": 4, "misclassification": 32, "ood-pairs": 40, "fgsm": 50, "distributions": 0}
    assert {name: len(columns(load_grid(name))) for name in counts} == counts


FIGURE = """
title: Figure
figure: %s
data: digits
backbone: small
recipe: demo
set: {epochs: 2}
seeds: [0]
tasks: [ood]
foreign: [photos]
runs:
  - {method: dsui}
"""


def test_distributions_are_the_moments_of_probabilities_and_entropies(finished: Study, tmp_path: Path) -> None:
    study = Study(tiny_study(tmp_path, FIGURE % "distributions").grid, tmp_path, runs=finished.runs)
    (cell,) = carry_out(study)
    rows = list(csv.DictReader(figure_csv(study, None).splitlines()))
    assert len(rows) == 4 * 11  # Max.P. and Ent. of two streams, ten digits and the photographs
    model = load_model(run_facts(study.run_path(cell)), CPU)
    test = load("digits", "test")
    with torch.no_grad():
        p = model.method.predict(model.transform.plain(test.read(torch.arange(797)))).logits.double().softmax(1)
    sevens = p[test.labels == 7]
    entropies = torch.distributions.Categorical(sevens).entropy()
    for score, values in (("max_probability", sevens.amax(1)), ("entropy", entropies)):
        (row,) = [row for row in rows if (row["x"], row["score"]) == ("7", score)]
        assert int(row["images"]) == len(sevens)
        # float32 networks in batches of 500 and of 797
        assert float(row["mean"]) == pytest.approx(values.mean().item(), abs=1e-4)
        assert float(row["deviation"]) == pytest.approx(values.std().item(), abs=1e-4)


def test_the_embedding_places_own_images_alone_and_with_foreign_ones(
    finished: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_points, "EMBEDDED", 100)
    study = Study(tiny_study(tmp_path, FIGURE % "embedding").grid, tmp_path, runs=finished.runs)
    carry_out(study)
    rows = list(csv.DictReader(figure_csv(study, None).splitlines()))
    own, both = ([row for row in rows if row["panel"] == panel] for panel in ("own", "with foreign"))
    assert {row["class"] for row in own} == set("0123456789")
    assert {row["class"] for row in both} == {*"0123456789", "photos"}
    assert len(both) == len(own) + sum(row["class"] == "photos" for row in both)
    digits, photos = (
        torch.tensor([[float(row["x"]), float(row["y"])] for row in both if (row["class"] == "photos") is foreign])
        for foreign in (False, True)
    )
    assert bool(torch.isfinite(torch.cat([digits, photos])).all())
    # a photograph's nearest neighbour is mostly a photograph: the net was trained on digits for two epochs
    distances = torch.cdist(photos, torch.cat([photos, digits]))
    distances[:, : len(photos)].fill_diagonal_(torch.inf)
    assert (distances.argmin(1) < len(photos)).float().mean() > 0.8


def test_a_study_that_holds_images_out_is_scored_on_them_and_on_images_made_from_them(tmp_path: Path) -> None:
    grid = parsed(
        """
        title: Selection
        data: digits
        backbone: small
        recipe: demo
        method: msp
        seeds: [0]
        held_out: 0.2
        set: {epochs: 1}
        tasks: [misclassification, ood]
        foreign: [blends]
        runs: [{}]
        table: [{task: accuracy, metrics: accuracy, scores: prediction}]
        """,
        "selection",
    )
    study = Study(grid, tmp_path)
    carry_out(study)
    rows = study.collect()
    assert {(row.protocol or "").split()[-1] for row in rows} == {"held-out"}
    assert {row.foreign for row in rows if row.task == "ood"} == {"blends"}
    assert {row.n_negative for row in rows if row.task == "ood"} == {200}


def test_own_images_nobody_has_split_and_foreign_ones_in_any_folder_are_data_that_is_there(tmp_path: Path) -> None:
    for name in ("mine/ant/1.png", "mine/bee/1.png", "others/deep/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(tmp_path / name)
    text = TINY.replace("data: digits", f"data: 'folder:{tmp_path / 'mine'}'").replace("[misc", "[ood, misc")
    there = tiny_study(tmp_path / "study", text + f"foreign: ['folder:{tmp_path / 'others'}']\n")
    assert there.absent(there.grid.cells[0]) == ()
    gone = tiny_study(tmp_path / "study", text + f"foreign: ['folder:{tmp_path / 'gone'}']\n")
    assert gone.absent(gone.grid.cells[0]) == (f"folder:{tmp_path / 'gone'}",)


def test_a_study_of_own_images_leaves_unreadable_files_out_where_its_grid_says_so(tmp_path: Path) -> None:
    for split, label, number in product(("train", "test"), range(2), range(20)):
        file = tmp_path / "mine" / split / str(label) / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((8, 8), 50).save(file)
    for split in ("train", "test"):
        (tmp_path / "mine" / split / "1" / "7.png").write_bytes(b"no image")
    text = TINY.replace("digits", f"'folder:{tmp_path / 'mine'}'").replace("epochs: 2", "epochs: 2, batch: 8")
    failed = tiny_study(tmp_path / "a", text)
    carry_out(failed)
    assert {failed.state(cell).kind for cell in failed.grid.cells} == {"failed"}
    assert "in grids: skip_bad" in failed.state(failed.grid.cells[0]).detail
    study = tiny_study(tmp_path / "b", text + "skip_bad: true\nsize: 8\nchannels: 1\n")
    carry_out(study)
    assert {study.state(cell) for cell in study.grid.cells} == {State("done")}
    asked = [row for row in study.collect() if row.task == "misclassification"]
    assert {(row.n_positive or 0) + (row.n_negative or 0) for row in asked} == {39}
