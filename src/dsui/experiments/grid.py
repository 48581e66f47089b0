"""What a grid is: the runs behind a table or figure, how each is evaluated, and how the result is laid out.

`dsui.experiments.grid_file` reads one from YAML.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from dsui.data.registry import PSEUDO
from dsui.outputs import DEFINITION
from dsui.runs.config import RunConfig


@dataclass(frozen=True)
class Cell:
    """One run predicting with one method: `predictor`, by default the method it was trained with.

    `label` names its line of the table, `settings` what `set` changed in the recipe or told the method. `figure` is
    "distributions" or "embedding" where a figure needs more of the run than its results rows. `detectors` are fitted to
    its outputs and score beside its own.
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

    @property
    def run(self) -> str:
        """The folder of its run: readable, and unlike that of any other configuration."""
        config = self.config
        parts = (config.data, config.backbone, config.method, config.recipe.name, config.known, self.settings)
        readable = "-".join(part for part in parts if part)
        slug = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in readable)[:80]
        return f"{slug}-{config.seed}-{_hash(config.mapping(), 8)}"

    @property
    def identity(self) -> dict[str, object]:
        """The whole configuration of run and evaluation: a cell is done when rows of this identity are there."""
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

    @property
    def key(self) -> str:
        return _hash(self.identity, 12)

    @property
    def name(self) -> str:
        config = self.config
        return ", ".join(filter(None, (self.label, config.data, config.backbone, config.known, f"seed {config.seed}")))

    @property
    def sets(self) -> dict[str, tuple[str, ...]]:
        """The data sets it needs, with their splits."""
        needed: dict[str, tuple[str, ...]] = {self.config.data: ("train", "test")}
        for name in self.foreign:
            if name in PSEUDO:
                continue  # made from the run's own
            needed[name] = ("test",)
        if self.config.outliers is not None:
            needed[self.config.outliers] = (*needed.get(self.config.outliers, ()), "train")
        return needed


@dataclass(frozen=True)
class Block:
    """Columns of the table: one task, its metrics, and each metric by several scores."""

    task: str
    metrics: tuple[str, ...]
    scores: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """`cells` in the order they are run: every method's first seed, then the second. `published`: a table of the
    paper whose figures stand beside. `reference`: the label the other lines are tested against."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    table: tuple[Block, ...]
    figure: str | None
    published: str | None
    reference: str


def _hash(value: object, digits: int) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:digits]
