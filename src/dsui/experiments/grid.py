"""A grid: the runs behind a table or figure, how each is evaluated, and how the results are laid out.

`dsui.experiments.grid_file` reads one from YAML.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dsui.data.registry import FOLDER, PSEUDO, foreign_split
from dsui.outputs import DEFINITION
from dsui.runs.config import RunConfig


@dataclass(frozen=True)
class Cell:
    """One run that predicts with one method, `predictor`; by default the method that it was trained with.

    `label` names its line of the table, and `settings` says what `set` changed in recipe and method. `figure` is
    "distributions" or "embedding" if a figure needs more of the run than its results rows. `detectors` are fitted to
    the outputs of the run and add their scores.
    """

    config: RunConfig
    predictor: str
    label: str
    settings: str
    tasks: tuple[str, ...]
    foreign: tuple[str, ...]
    epsilons: tuple[float, ...]
    figure: str | None
    detectors: tuple[str, ...] = ()

    @cached_property
    def run_name(self) -> str:
        """The name of the run's folder: readable, and different for every configuration."""
        config = self.config
        parts = (config.data, config.backbone, config.method, config.recipe.name, config.known, self.settings)
        readable = "-".join(part for part in parts if part)
        slug = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in readable)[:80]
        return f"{slug}-{config.seed}-{_hash(config.mapping(), 8)}"

    @property
    def identity(self) -> dict[str, object]:
        """The whole configuration of run and evaluation; the cell is done when there are rows of this identity."""
        return {
            "definition": DEFINITION,
            "run": self.config.mapping(),
            "predictor": self.predictor,
            "tasks": list(self.tasks),
            "foreign": list(self.foreign),
            "epsilons": list(self.epsilons),
            "figure": self.figure,
            "detectors": list(self.detectors),
        }

    @cached_property
    def key(self) -> str:
        return _hash(self.identity, 12)

    @property
    def name(self) -> str:
        config = self.config
        return ", ".join(filter(None, (self.label, config.data, config.backbone, config.known, f"seed {config.seed}")))

    @property
    def required_data(self) -> dict[str, tuple[str, ...]]:
        """The data sets that the cell needs, with their splits; foreign images of a user's may lie in any folder."""
        tested = self.config.held_out == 0 or "open-set" in self.tasks
        required: dict[str, tuple[str, ...]] = {self.config.data: ("train", "test") if tested else ("train",)}
        for name in self.foreign:
            if name not in PSEUDO:  # those are made from the run's own images
                base, split = foreign_split(name)
                required[base] = (*required.get(base, ()), *(() if base.startswith(FOLDER) else (split,)))
        if self.config.outliers is not None:
            required[self.config.outliers] = (*required.get(self.config.outliers, ()), "train")
        return required


Job = tuple[Cell, ...]
"""Cells that share a run."""


@dataclass(frozen=True)
class Block:
    """Columns of the table: one task, its metrics, and each metric by several scores."""

    task: str
    metrics: tuple[str, ...]
    scores: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """`cells` are in the order in which they run: the first seed of every method, then the second. `published` names a
    table of the paper whose figures are added. `reference` is the label that other lines are tested against. `means`
    names groups of foreign sets whose means are columns, too."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    table: tuple[Block, ...]
    figure: str | None
    published: str | None
    reference: str
    means: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _hash(value: object, digits: int) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:digits]
