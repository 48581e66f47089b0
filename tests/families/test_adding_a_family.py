"""CONTRIBUTING.md says how to add a family. This does so, word for word, in a copy, and asks of it what all keep."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fences import ROOT

FENCE = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FAMILY, REGISTRY = "src/dsui/families/isotropic_gaussian.py", "src/dsui/families/registry.py"
TEST = "tests/families/test_isotropic_gaussian.py"
LAST = '        "von-mises-fisher": "dsui.families.von_mises_fisher:VonMisesFisher",\n'


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    guide = dict(FENCE.findall((ROOT / "CONTRIBUTING.md").read_text()))
    folder = tmp_path_factory.mktemp("copy")
    for part in ("src/dsui", "tests/families", "tests/support"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py", "tests/test_head.py"):
        shutil.copy(ROOT / file, folder / file)
    for file in (FAMILY, TEST):
        (folder / file).write_text(guide[file])
    registry = (folder / REGISTRY).read_text()
    assert registry.count(LAST) == 1
    (folder / REGISTRY).write_text(registry.replace(LAST, LAST + guide[REGISTRY]))
    return folder


def run(copy: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_the_added_files_keep_the_house_style(copy: Path) -> None:
    run(copy, "ruff", "check", "--no-cache", FAMILY, REGISTRY, TEST)
    run(copy, "ruff", "format", "--no-cache", "--check", FAMILY, REGISTRY, TEST)


def test_the_added_family_passes_its_own_test_and_those_of_all_families(copy: Path) -> None:
    chosen = ("-k", "isotropic and not adding")
    printed = run(copy, "pytest", "-p", "no:cacheprovider", "tests/families", *chosen)
    passed = re.search(r"(\d+) passed", printed)
    assert passed is not None
    assert int(passed[1]) > 20
