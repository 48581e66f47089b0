"""The names a user can type, for help texts, for completion by a shell and to check what was typed.

PyTorch takes seconds to import, which a shell's completion cannot wait for. So nothing here imports it: the registries
hold names and import what they name later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources

from dsui.backbones import registry as backbone_registry
from dsui.data.registry import DATASETS, PSEUDO, TEST_ONLY, TRAIN_SUFFIX
from dsui.detectors import registry as detector_registry
from dsui.evaluation import TASKS
from dsui.experiments import ALL_GRIDS
from dsui.methods import registry as method_registry
from dsui.report.metric_formats import METRICS
from dsui.score_table import NAMES


def data() -> tuple[str, ...]:
    return tuple(DATASETS)


def foreign() -> tuple[str, ...]:
    """Data sets, their training splits, and foreign images made from the run's own."""
    return (*DATASETS, *(f"{name}{TRAIN_SUFFIX}" for name in DATASETS if name not in TEST_ONLY), *PSEUDO)


def methods() -> tuple[str, ...]:
    return method_registry.names()


def backbones() -> tuple[str, ...]:
    return backbone_registry.names()


def detectors() -> tuple[str, ...]:
    return detector_registry.names()


def tasks() -> tuple[str, ...]:
    return TASKS


def metrics() -> tuple[str, ...]:
    return tuple(METRICS)


def scores() -> tuple[str, ...]:
    """Those of the table; methods and detectors add their own."""
    return NAMES


def recipes() -> tuple[str, ...]:
    return _yaml_files("runs/recipes")


def grids() -> tuple[str, ...]:
    """The shipped grids, and the name of all those of the paper."""
    return (*_yaml_files("experiments/grids"), ALL_GRIDS)


def settings() -> tuple[str, ...]:
    """The settings that --set can change, as they are typed: `epochs=`."""
    import yaml

    recipe = yaml.safe_load((resources.files("dsui") / "runs/recipes/paper.yaml").read_text(encoding="utf-8"))
    return tuple(f"{key}=" for key in recipe)


def completion(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A function that tells typer how a word can be completed; after a comma the next name begins."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last) and name not in before.split(",")]

    return complete


@cache
def _yaml_files(folder: str) -> tuple[str, ...]:
    files = (resources.files("dsui") / folder).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))
