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
from dsui.runs.files import append_lines


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
    def from_json(cls, text: str | bytes) -> ResultRow:
        """The reverse of `to_json`. Unknown fields of a later version are ignored; a ValueError says what is wrong."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError("not a whole JSON object") from error
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
        names = [field.name for field in fields(cls)]
        needed = [field.name for field in fields(cls) if field.default is MISSING]
        if missing := [name for name in needed if name not in values]:
            raise ValueError(f"no {', '.join(missing)}")
        row: dict[str, Any] = {name: values.get(name) for name in names}
        for name in names:
            _check(name, row[name])
        try:
            row["metrics"] = {
                name: math.nan if value is None else float(value) for name, value in values["metrics"].items()
            }
        except OverflowError as error:
            raise ValueError("a figure is too large for a number") from error
        return cls(**row)


_MAPPINGS = {"metrics": (int, float, type(None)), "versions": (str,)}
_NEEDED = {"run": str, "method": str, "data": str, "task": str, "seed": int}
_NUMBERS = {"foreign": (str, int, float), "n_positive": (int,), "n_negative": (int,), "seconds": (int, float)}


def _check(name: str, value: object) -> None:
    if name in _MAPPINGS:
        right = isinstance(value, dict) and all(isinstance(item, _MAPPINGS[name]) for item in value.values())
    elif name in _NEEDED:
        right = isinstance(value, _NEEDED[name])
    else:
        right = value is None or isinstance(value, _NUMBERS.get(name, (str,)))
    if not right:
        raise ValueError(f"{name} is {json.dumps(value)[:40]}")


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
        try:
            content = path.read_bytes()
        except OSError as error:
            problems.append(f"{path} cannot be read ({error.strerror}).")
            continue
        for number, line in enumerate(content.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                rows.append(ResultRow.from_json(line))
            except ValueError as error:
                problems.append(f"{path} line {number} is not a results row: {error}.")
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
