"""`import dsui.runtime` in a process of its own: what it loads, and how long that takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.onnx_model import write_onnx_model

HEAVY = ("torch", "sklearn", "scipy", "rich", "typer", "pandas", "matplotlib", "onnx", "fastapi")
FEW_RUNS = 5
SECONDS = 0.3
"""Of the processor; the quickest of a few runs, because other processes share it. 0.15 when written."""

LOADED = """
import json, sys, time
start = time.process_time()
import dsui.runtime, onnxruntime
seconds = time.process_time() - start
if len(sys.argv) > 1:
    import numpy
    dsui.runtime.OnnxPredictor(sys.argv[1]).predict(numpy.zeros((2, 8, 8, 3), "uint8"))
    from dsui.runtime.rows import rows
print(json.dumps([seconds, sorted({name.split(".")[0] for name in sys.modules})]))
"""


def load(*words: object) -> tuple[float, set[str]]:
    """Seconds, and the names of the loaded packages."""
    done = subprocess.run([sys.executable, "-c", LOADED, *map(str, words)], capture_output=True, text=True, check=True)
    seconds, packages = json.loads(done.stdout)
    return seconds, set(packages)


def test_nothing_heavy_is_loaded_before_and_after_a_prediction(tmp_path: Path) -> None:
    write_onnx_model(tmp_path / "model.onnx")
    _, packages = load(tmp_path / "model.onnx")
    assert not packages & set(HEAVY)
    ours = {"dsui", "numpy", "PIL", "onnxruntime"}
    assert ours <= packages


def test_the_import_takes_less_than_three_tenths_of_a_second() -> None:
    assert min(load()[0] for _ in range(FEW_RUNS)) < SECONDS
