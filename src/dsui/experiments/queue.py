"""Which run comes next, and which may still begin before a deadline.

    worth of a run per minute = sum over its cells of (table entries that the cell fills) / n,  by its minutes

The minutes are those the run still needs, so half-done runs come first. n numbers the runs of a line of the table: the
first one fills empty places, and the n-th moves the means of n runs. Where two runs are worth the same, the earlier
line of the grid comes first.

Before a deadline a run begins only if it would end in time by the estimate. A run that is longer than the whole time
begins when nothing else fits; it stops at the deadline and continues from its checkpoint in the next call.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dsui.experiments.estimate import Estimate
from dsui.experiments.grid import Cell, Grid, Job

RESERVE_SECONDS, LARGEST_RESERVE = 10.0, 0.1
"""Training stops this long before a deadline, but at most this share of the whole time, to write its checkpoint."""
Estimates = Callable[[Sequence[Job]], list[Estimate | None]]


class Deadline:
    """A moment, `seconds` after `began`, beyond which nothing may run."""

    def __init__(self, seconds: float, began: float) -> None:
        self.seconds, self.moment = seconds, began + seconds

    @property
    def left(self) -> float:
        return self.moment - time.time()

    @property
    def training_ends(self) -> float:
        """When training has to stop, as `time.time()` counts."""
        return self.moment - min(RESERVE_SECONDS, LARGEST_RESERVE * self.seconds)

    @property
    def stops_training(self) -> bool:
        return time.time() >= self.training_ends


class JobQueue(Iterator[Job]):
    """Jobs, the one that is worth most per minute first; ends when none is left that may begin."""

    def __init__(
        self, jobs: Sequence[Job], worth: Mapping[str, float], estimates: Estimates, deadline: Deadline | None = None
    ) -> None:
        self.waiting, self.worth, self.estimates, self.deadline = list(jobs), worth, estimates, deadline

    def __next__(self) -> Job:
        seconds = [math.inf if each is None else each.seconds for each in self.estimates(self.waiting)]
        able = [index for index, needed in enumerate(seconds) if self._may_begin(needed)]
        if not able:
            raise StopIteration
        best = max(able, key=lambda index: (self._fits(seconds[index]), self._worth(index) / max(seconds[index], 1.0)))
        return self.waiting.pop(best)

    def _worth(self, index: int) -> float:
        return math.fsum(self.worth.get(cell.key, 1.0) for cell in self.waiting[index])

    def _may_begin(self, seconds: float) -> bool:
        deadline = self.deadline
        if deadline is None:
            return True
        return deadline.left > 0 and (self._fits(seconds) or not seconds <= deadline.seconds)

    def _fits(self, seconds: float) -> bool:
        return self.deadline is None or seconds <= self.deadline.left


def worths(grids: Iterable[Grid]) -> dict[str, float]:
    """By the key of a cell: the table entries that it fills in all grids, divided by the number of its run."""
    total: dict[str, float] = {}
    for grid in grids:
        runs: dict[tuple[str, str, str], list[tuple[str | None, int]]] = {}
        for cell in grid.cells:
            config = cell.config
            of_line = runs.setdefault((cell.label, config.data, config.backbone), [])
            if (run := (config.known, config.seed)) not in of_line:
                of_line.append(run)
            number = of_line.index(run) + 1
            total[cell.key] = total.get(cell.key, 0.0) + entries(grid, cell) / number
    return total


def entries(grid: Grid, cell: Cell) -> int:
    """The entries of the table to which the cell gives a value; the points of a figure count as one."""
    sets = {"ood": len(cell.foreign), "fgsm": len(cell.epsilons)}
    tasks = {*cell.tasks, *(["accuracy"] if "misclassification" in cell.tasks else [])}
    filled = (
        len(block.metrics) * len(block.scores) * sets.get(block.task, 1) for block in grid.table if block.task in tasks
    )
    return sum(filled) + (cell.figure is not None)
