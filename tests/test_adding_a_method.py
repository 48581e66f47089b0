"""CONTRIBUTING.md says how to add a method. These tests do so, word for word, in a copy of the repository."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsui import UncertaintyClassifier
from dsui.data.digits import digits
from dsui.methods.registry import METHODS

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(python|bash)\n(?:# (\S+\.py)\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)
METHOD, REGISTRY = "src/dsui/methods/one_vs_all.py", "src/dsui/methods/registry.py"
TEST = "tests/methods/test_one_vs_all.py"
END_OF_METHODS = "    }\n)\n"


@pytest.fixture(scope="module")
def guide() -> dict[str, str]:
    """The text for each file, and "" for the commands."""
    return {file: text for _, file, text in FENCE.findall((ROOT / "CONTRIBUTING.md").read_text())}


@pytest.fixture(scope="module")
def copy(guide: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of source and method tests, with the guide's method, its line in the registry and its test."""
    folder = tmp_path_factory.mktemp("copy")
    for part in ("src/dsui", "tests/methods", "tests/support"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py"):
        shutil.copy(ROOT / file, folder / file)
    for file in (METHOD, TEST):
        (folder / file).write_text(guide[file])
    registry = (folder / REGISTRY).read_text()
    assert registry.count(END_OF_METHODS) == 1
    (folder / REGISTRY).write_text(registry.replace(END_OF_METHODS, guide[REGISTRY] + END_OF_METHODS))
    return folder


def run(copy: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_the_added_files_keep_the_house_style(copy: Path) -> None:
    run(copy, "ruff", "check", "--no-cache", METHOD, REGISTRY, TEST)
    run(copy, "ruff", "format", "--no-cache", "--check", METHOD, REGISTRY, TEST)


def test_the_added_test_passes(copy: Path) -> None:
    assert "4 passed" in run(copy, "pytest", "-p", "no:cacheprovider", TEST)


def test_the_command_line_trains_and_evaluates_the_added_method(copy: Path, guide: dict[str, str]) -> None:
    train, evaluate = (line.split() for line in guide[""].replace("\\\n", "").splitlines())
    assert train[0] == evaluate[0] == "dsui"
    run(copy, *train)
    rows: list[dict[str, Any]] = [json.loads(line) for line in run(copy, *evaluate).splitlines()]
    assert {row["method"] for row in rows} == {"one-vs-all"}
    found = {(row["task"], row["score"]): row["metrics"] for row in rows}
    assert found["accuracy", "prediction"]["accuracy"] > 0.95  # 98.4 % of 797 digits when written
    assert found["misclassification", "max_probability"]["auroc"] > 0.9  # 98.6 %
    assert found["noise", "nobody"]["auroc"] > 0.9  # 97.3 %
    assert "others: 0.5" in (copy / "runs/one-vs-all/config.yaml").read_text()


def test_without_a_checkout_the_registry_takes_a_class(
    guide: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one_vs_all.py").write_text(guide[METHOD])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(METHODS, "one-vs-all", importlib.import_module("one_vs_all").OneVsAll)
    images, labels = digits()
    classifier = UncertaintyClassifier("small", method="one-vs-all", recipe="demo", settings={"others": 0.5})
    classifier.fit(images[:500], labels[:500], epochs=15).save(tmp_path / "run")
    assert UncertaintyClassifier.load(tmp_path / "run").score(images[500:], labels[500:]) > 0.85  # 93.0 % when written
