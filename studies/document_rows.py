"""Which committed rows a table, a figure or a number of a document is made of. Some keys say so, in YAML:

    file: cifar10-resnet18-paper      # results/NAME.jsonl, or a list of such names
    grid: cifar10-paper               # a shipped grid, which names the lines
    where: {seed: 0, method: [dsui, msp]}                       # only rows with these values in their fields
    means: {near: [cifar100, tiny-imagenet]}                    # also means over foreign sets
    labels: {"msp (paper, neck=False)": softmax without neck}   # other names of lines

The name of a line is the `label` of its rows, or the label that the grid gives to their method and recipe, or the
method. `where: {method: ...}` chooses by method or by this name; `labels` renames what was chosen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import yaml

from dsui.evaluation.results import ResultRow
from dsui.experiments.grid import Grid
from dsui.experiments.grid_file import load_grid
from dsui.report.comparison_lines import relabel, with_prediction_stream
from dsui.report.group_means import with_group_means
from dsui.runs.training_name import training_name


@dataclass(frozen=True)
class RowSource:
    """The module's docstring explains the keys."""

    file: str | list[str] = ""
    grid: str | None = None
    where: dict[str, Any] = field(default_factory=dict)
    means: dict[str, list[str]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls.of(yaml.safe_load(text))

    @classmethod
    def of(cls, values: object) -> Self:
        known = [each.name for each in fields(cls)]
        if not isinstance(values, dict):
            raise ValueError(f"a block is a YAML mapping with the keys {', '.join(known)}; this one is not a mapping.")
        if unknown := [key for key in values if key not in known]:
            raise ValueError(f"a block has no key {unknown[0]}; its keys are {', '.join(known)}.")
        return cls(**values)

    @property
    def files(self) -> list[str]:
        return [self.file] if isinstance(self.file, str) else self.file

    def rows(self, results: Path) -> list[ResultRow]:
        """The chosen rows in the folder `results`, each under the name of its line."""
        rows = [row for name in self.files for row in self._chosen(results / f"{name}.jsonl")]
        grid = load_cached(self.grid) if self.grid else None
        return with_group_means(rows, self.means or (grid.means if grid else {}))

    def _chosen(self, path: Path) -> Iterator[ResultRow]:
        labels = _grid_labels(self.grid) if self.grid else {}
        own_names = set(labels.values()) - {method for method, *_ in labels}  # a method's name does not tell its recipe
        wanted = {name: value if isinstance(value, list) else [value] for name, value in self.where.items()}
        for row, own_label in _read(path, path.stat().st_mtime_ns):
            label = own_label or labels.get((row.method, row.data, row.backbone, row.recipe))
            if self.grid and not label:
                label = row.method if row.method in own_names else f"{row.method} ({row.recipe})"
            named = {**vars(row), "label": label}
            if all(named[name] in values or (name == "method" and label in values) for name, values in wanted.items()):
                shown = self.labels.get(label or row.method, label)
                yield relabel(row, shown) if shown else row


@cache
def _read(path: Path, _changed: int) -> list[tuple[ResultRow, str | None]]:
    """The rows of a file with their own labels; kept, since most files have many blocks."""
    lines = path.read_text().splitlines()
    return [(_modernize(ResultRow.from_json(line)), json.loads(line).get("label")) for line in lines]


@cache
def load_cached(grid: str) -> Grid:
    """Kept, since many blocks share a grid and a grid of many cells takes seconds to read."""
    return load_grid(grid)


@cache
def _grid_labels(grid: str) -> dict[tuple[str, str, str, str], str]:
    """The label of each cell of a grid, by what its rows say: method, data, backbone and training."""
    return {
        (cell.predictor, cell.config.data, cell.config.backbone, training_name(cell.config)): cell.label
        for cell in load_cached(grid).cells
    }


def _modernize(row: ResultRow) -> ResultRow:
    """Rows older than `dsui evaluate` call all images of the official test set by another name."""
    protocol = f"{row.task}, all in-domain images of test" if row.protocol == "official test set" else row.protocol
    return with_prediction_stream(replace(row, protocol=protocol))
