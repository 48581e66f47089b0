"""The queue: what fills the most of the table in a minute comes next, and nothing that would not end in time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from dsui.experiments.estimate import Estimate
from dsui.experiments.grid import Job
from dsui.experiments.grid_file import parse_grid
from dsui.experiments.queue import Deadline, JobQueue, entries, worths
from tests.support.tiny_grid import TINY, rkl_reads_msp, tiny_study  # noqa: F401

SEEDS = TINY.replace("[0]", "[0, 1]")


def order(jobs: Sequence[Job], seconds: Sequence[float | None], deadline: Deadline | None = None) -> list[int]:
    """The positions of the jobs in the order in which a queue gives them out; each fills as many entries as cells."""
    needs = {job[0].key: each for job, each in zip(jobs, seconds, strict=True)}

    def estimates(some: Sequence[Job]) -> list[Estimate | None]:
        found = [needs[job[0].key] for job in some]
        return [None if each is None else Estimate(each, 0.0) for each in found]

    return [jobs.index(job) for job in JobQueue(jobs, {}, estimates, deadline)]


def jobs(out: Path, text: str = SEEDS) -> list[Job]:
    study = tiny_study(out, text)
    return study.jobs(study.grid.cells)


def test_the_most_cells_per_minute_come_first_and_the_grid_decides_where_they_are_equal(tmp_path: Path) -> None:
    four = jobs(tmp_path)  # seeds 0 and 1 of msp, which is two cells, and of dsui, which is one
    assert [len(job) for job in four] == [2, 1, 2, 1]
    assert order(four, [60, 60, 60, 60]) == [0, 2, 1, 3]
    assert order(four, [600, 60, 60, 200]) == [2, 1, 3, 0]
    assert order(four, [90, 40, 90, 20]) == [3, 1, 0, 2]
    assert order(four, [None, 600, None, 600]) == [1, 3, 0, 2]  # nobody knows how long those take


def test_before_a_deadline_only_what_ends_in_time_begins(tmp_path: Path) -> None:
    four = jobs(tmp_path)
    half = Deadline(600, began=time.time() - 300)
    assert order(four, [299, 301, 301, 298], half) == [0, 3]
    assert order(four, [1, 1, 1, 1], Deadline(600, began=time.time() - 600)) == []


def test_a_run_longer_than_the_whole_time_begins_last_and_is_continued_in_the_next_call(tmp_path: Path) -> None:
    four = jobs(tmp_path)
    assert order(four, [700, 500, 700, None], Deadline(600, time.time())) == [1, 0, 2, 3]


def test_training_stops_early_enough_to_write_its_checkpoint() -> None:
    now = time.time()
    assert Deadline(540, now).training_ends == pytest.approx(now + 530)
    assert Deadline(20, now).training_ends == pytest.approx(now + 18)
    assert Deadline(540, now - 535).stops_training
    assert not Deadline(540, now).stops_training


def test_a_cell_is_worth_the_entries_of_the_table_that_it_fills_and_later_seeds_less() -> None:
    text = """
        title: Worth
        data: digits
        backbone: small
        recipe: demo
        seeds: [4, 7]
        method: msp
        runs:
          - {tasks: [misclassification]}
          - {tasks: [misclassification, ood, fgsm], foreign: [photos, svhn], epsilons: [0.1, 0.2, 0.3], label: more}
        table:
          - {task: accuracy, metrics: accuracy, scores: prediction}
          - {task: misclassification, metrics: [auroc, aurc], scores: [max_probability, entropy]}
          - {task: ood, metrics: auroc, scores: [max_probability, entropy]}
          - {task: fgsm, metrics: auroc, scores: max_probability}
        reference: msp
        """
    grid = parse_grid(text, "worth")
    assert [entries(grid, cell) for cell in grid.cells] == [5, 12, 5, 12]
    worth = worths([grid])
    assert [worth[cell.key] for cell in grid.cells] == [5, 12, 2.5, 6]
    assert worths([grid, grid])[grid.cells[0].key] == 10  # two tables show it


def test_class_splits_are_runs_of_one_line_as_seeds_are() -> None:
    text = """
        title: Splits
        data: cifar10
        method: msp
        seeds: [0]
        known: [neal-0, neal-1, neal-2]
        tasks: [open-set]
        table: [{task: open-set, metrics: auroc, scores: max_probability}]
        reference: msp
        """
    grid = parse_grid(text, "splits")
    assert [worths([grid])[cell.key] for cell in grid.cells] == [1, 1 / 2, 1 / 3]
