"""dsui-runtime in an environment that has nothing else: no PyTorch, and it predicts.

The packages come from the index that pip is set up with. Without one these tests are skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from PIL import Image

from tests.packaging.test_distributions import RUNTIME, build
from tests.support.fences import ROOT
from tests.support.onnx_model import write_onnx_model

SMALL = "mdurl"
"""A package of a few kilobytes that the runtime needs anyway; without an index it cannot be had."""
FULL_ONLY = {"torch", "scipy", "scikit-learn", "safetensors"}
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
CONSTRAINED = ["--constraint", str(ROOT / "constraints.txt")]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment with dsui-runtime[serving]."""
    folder = tmp_path_factory.mktemp("clean")
    probe = [*PIP, "download", "--quiet", "--no-deps", *CONSTRAINED, "--dest", str(folder / "probe"), SMALL]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("pip reaches no package index")
    venv.create(folder / "venv")
    wheel = build(RUNTIME, folder / "wheel")
    python = str(folder / "venv" / "bin" / "python")
    install = [*PIP, "--python", python, "install", "--quiet", "--no-compile", *CONSTRAINED, f"{wheel}[serving]"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "venv" / "bin"


def run(command: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Without the settings of this process, which may name its own packages."""
    alone = {"PATH": "/usr/bin:/bin"}
    return subprocess.run([str(command), *map(str, words)], capture_output=True, text=True, check=False, env=alone)


def test_it_predicts_serves_and_knows_what_it_is_not(clean: Path, tmp_path: Path) -> None:
    write_onnx_model(tmp_path / "model.onnx", limits=("foreignness",))
    for name, colour in {"a": (128, 128, 128), "b": (255, 0, 0)}.items():
        Image.new("RGB", (40, 30), colour).save(tmp_path / f"{name}.png")
    done = run(clean / "dsui", "predict", tmp_path / "model.onnx", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["decision"], row["reason"], row["error"]) for row in rows] == [
        ("accept", None, None),
        ("reject", "foreign", None),
    ]
    assert "2 images predicted: 1 accepted, 1 rejected." in done.stderr

    listed = run(clean / "python", "-c", "import importlib.metadata as m; print(*(d.name for d in m.distributions()))")
    installed = set(listed.stdout.lower().split())
    assert "dsui-runtime" in installed
    assert not installed & FULL_ONLY

    for name in ("dsui.serving.app", "dsui.serving.server", "dsui.monitoring"):
        done = run(clean / "python", "-W", "error", "-c", f"import {name}, sys; assert 'torch' not in sys.modules")
        assert done.returncode == 0, done.stderr

    told = json.loads(run(clean / "dsui", "info", tmp_path / "model.onnx", "--json").stdout)
    assert told["decision"]["accepts"] == "foreignness up to 0.4"
    assert json.loads(run(clean / "dsui", "info", "--json").stdout)["versions"]["onnxruntime"]

    commands = run(clean / "dsui", "--help").stdout
    assert "predict" in commands
    assert "serve" in commands
    assert "train" not in commands.partition("Commands:")[2]
    for words, sentence in {
        ("predict", str(tmp_path), str(tmp_path)): "dsui-runtime reads files of `dsui export` alone; a run needs pip",
        ("train",): "no command 'train'; ",
        ("predict", "absent.onnx", "a.png"): "there is no file absent.onnx; export one with",
    }.items():
        refused = run(clean / "dsui", *words)
        assert refused.returncode in {1, 2}
        assert refused.stdout == ""
        assert refused.stderr.count("\n") == 1
        assert sentence in refused.stderr

    refused = run(clean / "python", "-c", "from dsui import Predictor")
    assert (
        refused.stderr.splitlines()[-1] == "ImportError: dsui.Predictor is not in dsui-runtime; run pip install dsui."
    )


def test_two_versions_side_by_side_are_told(clean: Path) -> None:
    (packages,) = clean.parent.glob("lib/python*/site-packages")
    other = packages / "dsui-0.0.9.dist-info"
    other.mkdir()
    try:
        refused = run(clean / "dsui", "--version")
    finally:
        other.rmdir()
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith(
        "ImportError: dsui 0.0.9 and dsui-runtime 0.1.0 are both installed, so their files are mixed; run pip uninstall"
    )
    assert run(clean / "dsui", "--version").stdout == "dsui 0.1.0\n"


def pip(environment: Path, *words: object) -> None:
    """In the environment whose commands are in this folder."""
    command = [*PIP, "--python", str(environment / "python"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_uninstalling_one_of_both_is_seen_and_mended_as_the_page_says(clean: Path, tmp_path: Path) -> None:
    """The last test here, because it takes dsui-runtime away."""
    mends = "pip install --force-reinstall --no-deps dsui"
    page = (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")
    assert mends in page
    whole = build(ROOT, tmp_path / "wheel")
    pip(clean, "install", "--quiet", "--no-deps", "--no-compile", whole)
    assert run(clean / "dsui", "--version").stdout == "dsui 0.1.0\n"  # with both
    pip(clean, "uninstall", "--quiet", "--yes", "dsui-runtime")
    assert not (clean / "dsui").exists()
    refused = run(clean / "python", "-c", "import dsui.runtime")
    message = refused.stderr.splitlines()[-1]
    assert message == "ModuleNotFoundError: No module named 'dsui.runtime'"
    assert message.partition(": ")[2] in page
    pip(clean, *mends.split()[1:-1], "--quiet", "--no-compile", whole)
    assert run(clean / "dsui", "--version").stdout == "dsui 0.1.0\n"
    assert run(clean / "python", "-c", "import dsui.runtime").returncode == 0
