"""The results row: the metrics of one run, task and score, one JSON object on a line of a .jsonl file.

Tables, figures and the report are made from these rows. Metrics are fractions; one that does not exist (AUROC without
errors) is null in the file and nan in memory. Rows are only appended. Where runs are compared, a later row of the same
run, task, foreign set and score replaces an earlier one.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dsui
from dsui.errors import DsuiError
from dsui.plain_json import load_json
from dsui.regular_file import read_regular
from dsui.runs.files import append_lines
from dsui.schema import NOTHING, check, either, mapping, number, record, text, whole

LARGEST = 1 << 29
"""Bytes of a results file; a row takes one or two thousand."""
LONGEST = 4096
"""Characters of a text, which may be the path of a folder of images."""
MOST_PROBLEMS = 100
"""The lines of a file that are named one by one if they cannot be used."""


@dataclass(frozen=True)
class ResultRow:
    """`foreign`: the foreign set or the epsilon of an attack. `split`: the class split of an open-set test."""

    run: str
    method: str
    objective: str | None
    data: str
    backbone: str
    recipe: str
    seed: int
    task: str
    foreign: str | float | None
    score: str | None
    metrics: Mapping[str, float]
    n_positive: int | None
    n_negative: int | None
    protocol: str | None
    split: str | None
    versions: Mapping[str, str]
    device: str | None
    seconds: float | None
    commit: str | None
    weights: str | None = None
    """The first digits of the weights' hash, which distinguish runs whose folders have the same name."""

    @property
    def identity(self) -> str:
        """What distinguishes the run of this row from others."""
        return self.weights or self.run

    @property
    def of_test_images(self) -> bool:
        """Whether the row is about test images, not about images that the run held out."""
        return "of held-out" not in (self.protocol or "")

    def to_json(self) -> str:
        metrics = {name: float(value) if math.isfinite(value) else None for name, value in self.metrics.items()}
        return json.dumps(asdict(self) | {"metrics": metrics}, allow_nan=False)

    @classmethod
    def from_json(cls, line: str | bytes) -> ResultRow:
        """The reverse of `to_json`. Unknown fields of a later version are ignored; a ValueError says what is wrong."""
        values: Any = load_json(line)
        check(values, ROW)
        row = {field.name: values.get(field.name) for field in fields(cls)}
        row["metrics"] = {
            name: math.nan if value is None else float(value) for name, value in values["metrics"].items()
        }
        return cls(**row)


_TEXT, _COUNT = either(text(LONGEST), NOTHING), either(whole(0, 1 << 53), NOTHING)
_IS_TEXT = {"run", "method", "data", "task"}
_KINDS = {
    "seed": whole(-(1 << 63), (1 << 64) - 1),
    "foreign": either(text(LONGEST), number(), NOTHING),
    "metrics": mapping(either(number(finite=False), NOTHING)),
    "n_positive": _COUNT,
    "n_negative": _COUNT,
    "versions": mapping(text()),
    "seconds": either(number(), NOTHING),
}
ROW = record(
    {
        field.name: _KINDS.get(field.name, text(LONGEST) if field.name in _IS_TEXT else _TEXT)
        for field in fields(ResultRow)
        if field.default is MISSING
    },
    {"weights": _TEXT},
)
"""What a line of a results file must hold."""


def append(path: Path, rows: Iterable[ResultRow]) -> None:
    """Append rows to a file, all of them or none."""
    try:
        append_lines(path, "".join(f"{row.to_json()}\n" for row in rows).encode())
    except OSError as error:
        raise DsuiError(
            f"{path} could not be written ({error.strerror}); nothing was added; remove the cause and run this again."
        ) from error


def read(paths: Iterable[Path]) -> tuple[list[ResultRow], list[str]]:
    """The rows of all files in order, and a sentence for each line or file that cannot be used."""
    rows: list[ResultRow] = []
    problems: list[str] = []
    for path in paths:
        unusable = 0
        try:
            content = read_regular(path, LARGEST)
        except OSError as error:
            problems.append(f"{path} cannot be read ({error.strerror}).")
            continue
        for count, line in enumerate(content.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                rows.append(ResultRow.from_json(line))
            except ValueError as error:
                unusable += 1
                if unusable <= MOST_PROBLEMS:
                    problems.append(f"{path} line {count} is not a results row: {error}.")
        if unusable > MOST_PROBLEMS:
            problems.append(f"{path} has {unusable - MOST_PROBLEMS:,} further lines that are no results rows.")
    return rows, problems


def versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "dsui": dsui.__version__,
        "numpy": np.__version__,
    }


def commit() -> str | None:
    """The commit that dsui runs from, with "-dirty" where the source differs; None outside a checkout of dsui."""
    package = Path(dsui.__file__).resolve().parent
    checkout, git = package.parents[1], shutil.which("git")
    if git is None or not (checkout / ".git").exists() or package != checkout / "src" / "dsui":
        return None
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    answers = []
    for question in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", str(package)]):
        answer = subprocess.run(  # noqa: S603
            [git, "--no-optional-locks", "-C", str(checkout), *question],
            capture_output=True,
            text=True,
            env=own,
            check=False,
        )
        if answer.returncode != 0:
            return None
        answers.append(answer.stdout.strip())
    return f"{answers[0]}-dirty" if answers[1] else answers[0]
