"""The ratios of benchmarks/*.md as the JSON that dsui ships: `dsui bench` prints them beside those of a user's machine.

python -m studies.benchmark_figures
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "src" / "dsui" / "benchmarks" / "committed.json"
PAGES = {"cpu": "cpu", "cuda": "h200"}
OWN_STEP = {"cpu": "dsui, eager", "cuda": "dsui, one CUDA graph"}


def figures(device: str) -> dict[str, object]:
    """The machine, and the ratios by the keys of `dsui.benchmarks.ratios`."""
    pages = {name: _page(name, device) for name in ("head", "training", "evaluation")}
    ratios: dict[str, float] = {}
    for classes in (10, 100):
        faster = _cell(pages["head"], str(classes), 4).split(" / ")
        for name, value in zip(("MixtureSameFamily", "broadcast"), faster, strict=True):
            ratios[f"head, {classes} classes, against {name}"] = float(value)
    step = OWN_STEP[device]
    ratios["step against an ordinary loop"] = float(_cell(pages["training"], step, 3))
    cost = re.search(rf"linear head: .*?([\d.]+) \({re.escape(step)}\)", pages["training"])
    assert cost is not None
    ratios["step against the same with a linear head"] = float(cost[1])
    ratios["evaluation in one pass"] = float(_cell(pages["evaluation"], "dsui, one pass", 3))
    ratios["evaluation from the cache"] = float(_cell(pages["evaluation"], "dsui again, from the cache", 3))
    if device == "cpu":  # the server predicts on the processor
        small = _page("serving", device).partition("## small")[2]
        ratios["serving 64 clients, against bare ONNX Runtime"] = float(_cell(small, "64", 3))
    machine = pages["training"].splitlines()[0].partition(": ")[2]
    return {"machine": machine, "ratios": ratios}


def text() -> str:
    """What the shipped file holds."""
    return json.dumps({device: figures(device) for device in PAGES}, indent=2) + "\n"


def _page(name: str, device: str) -> str:
    return (ROOT / "benchmarks" / f"{name}-{PAGES[device]}.md").read_text(encoding="utf-8")


def _cell(page: str, first: str, column: int) -> str:
    """Of the first line of a table that begins with `first`."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == first:
            return cells[column]
    raise ValueError(f"no line of a table begins with {first}.")


if __name__ == "__main__":
    SHIPPED.write_text(text(), encoding="utf-8")
