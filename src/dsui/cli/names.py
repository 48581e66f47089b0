"""The names a user can type, read from where they are written down without importing what they name.

PyTorch takes longer to import than a shell's completion may last, so a registry is read as text: the keys of its
mapping, or the strings of its tuple.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources

from dsui.score_table import NAMES


def data() -> tuple[str, ...]:
    return _written("data/registry.py", "DATASETS")


def foreign() -> tuple[str, ...]:
    """Data sets, and images made from the run's own."""
    return (*data(), *_written("data/pseudo.py", "PSEUDO"))


def methods() -> tuple[str, ...]:
    return _written("methods/registry.py", "METHODS")


def backbones() -> tuple[str, ...]:
    return _written("backbones/registry.py", "BACKBONES")


def detectors() -> tuple[str, ...]:
    return _written("detectors/registry.py", "DETECTORS")


def tasks() -> tuple[str, ...]:
    return _written("evaluation/tasks.py", "TASKS")


def metrics() -> tuple[str, ...]:
    return _written("report/columns.py", "METRICS")


def scores() -> tuple[str, ...]:
    """Those of the table; methods and detectors add their own."""
    return NAMES


def recipes() -> tuple[str, ...]:
    return _files("runs/recipes")


def grids() -> tuple[str, ...]:
    return _files("experiments/grids")


def settings() -> tuple[str, ...]:
    """What --set may change, as it is typed: `epochs=`."""
    import yaml

    written = yaml.safe_load((resources.files("dsui") / "runs/recipes/paper.yaml").read_text(encoding="utf-8"))
    return tuple(f"{key}=" for key in written)


def completion(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What typer asks for the words that may stand where `incomplete` stands; after a comma comes the next."""

    def completed(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last) and name not in before.split(",")]

    return completed


@cache
def _written(file: str, name: str) -> tuple[str, ...]:
    """The strings that `name` is made of at the top of a file of dsui."""
    for statement in ast.parse((resources.files("dsui") / file).read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                break
            case ast.AnnAssign(target=ast.Name(id=found), value=value) if found == name:
                break
    else:
        raise LookupError(f"{file} assigns no {name}")
    match value:
        case ast.Dict(keys=parts) | ast.Tuple(elts=parts):
            return tuple(ast.literal_eval(part) for part in parts if part is not None)
    raise LookupError(f"{name} in {file} is neither a mapping nor a tuple")


@cache
def _files(folder: str) -> tuple[str, ...]:
    files = (resources.files("dsui") / folder).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))
