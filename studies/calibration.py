"""Why is DS-UI underconfident after a short training, and how many held-out images does a temperature take?

The runs train on 256 digits with the recipe demo, five seeds. Of the 1,541 test digits 541 stand for held-out
images, to which the temperature is fitted; all figures are of the other 1,000. "On the sphere" are the logits as
trained, without the factor min(1, |h| / sqrt(M)) of prediction (`dsui.methods.dsui`).

    python -m studies.calibration results/calibration.jsonl results/temperature.jsonl

writes a line for each variant and seed into the first file. Into the second goes a line for each method, number of
held-out images and draw of them: the NLL with the plain fit of the temperature, and with that of
`dsui.runs.temperature`. `studies.documents` puts both tables into docs/evaluation.md.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from dsui.data.registry import load
from dsui.evaluation.reliability import calibration_metrics
from dsui.evaluation.statistics import summarize
from dsui.methods.dsui import DualSupervised
from dsui.runs.config import RunConfig
from dsui.runs.model import forward
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.runs.temperature import RANGE, fit_temperature
from dsui.scores import sphere_logits
from dsui.training.distributed import World
from dsui.training.loop import fit
from dsui.training.reporter import SilentReporter

SEEDS, HELD_OUT, DRAWS = 5, 541, 100
DATA = "digits-256"
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "msp": ("msp", {}),
    "dsui": ("dsui", {}),
    "dsui, logit scale from 96": ("dsui", {"scale": 96.0}),
    "dsui, 160 epochs": ("dsui", {"epochs": 160}),
}
SIZES = (10, 25, 50, 100, 250)
"""Numbers of held-out images."""
COLUMNS = {
    "accuracy %": ("accuracy", 100, 1),
    "NLL": ("nll", 1, 3),
    "ECE %": ("ece", 100, 1),
    "NLL on the sphere": ("sphere_nll", 1, 3),
    "ECE on the sphere %": ("sphere_ece", 100, 1),
    "logit scale times M": ("scale", 1, 1),
    "temperature": ("temperature", 1, 2),
    "scaled NLL": ("scaled_nll", 1, 3),
    "scaled ECE %": ("scaled_ece", 100, 1),
}


@cache
def outputs(variant: str, seed: int) -> tuple[Tensor, Tensor | None, Tensor, float | None]:
    """Logits, logits on the sphere and labels of the test digits in a fixed order, and the logit scale times M."""
    method, settings = VARIANTS[variant]
    overrides, options = method_options(method, settings)
    recipe = load_recipe("demo", DATA, overrides)
    config = RunConfig(
        data=DATA, backbone="small", method=method, seed=seed, size=8, channels=1, recipe=recipe, options=options
    )
    test = load(DATA, "test")
    order = torch.randperm(len(test.labels), generator=torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as folder:
        trained = fit(config, load(DATA, "train"), Path(folder) / "run", torch.device("cpu"), World(), SilentReporter())
    found = forward(trained.method, trained.transform, test.read(order))
    scale = None
    if isinstance(trained.method, DualSupervised):
        head = trained.method.head
        scale = torch.as_tensor(head.logit_scale).item() * head.in_features
    return found.logits.double(), sphere_logits(found), test.labels[order], scale


def run(variant: str, seed: int) -> dict[str, float]:
    logits, sphere, labels, scale = outputs(variant, seed)
    temperature = fit_temperature(logits[:HELD_OUT], labels[:HELD_OUT])
    measured = slice(HELD_OUT, None)
    figures = calibration_metrics(logits[measured], labels[measured])
    scaled = calibration_metrics(logits[measured] / temperature, labels[measured])
    row = {name: figures[name] for name in ("accuracy", "nll", "ece")}
    row |= {"temperature": temperature, "scaled_nll": scaled["nll"], "scaled_ece": scaled["ece"]}
    if sphere is not None and scale is not None:
        on_sphere = calibration_metrics(sphere[measured], labels[measured])
        row |= {"sphere_nll": on_sphere["nll"], "sphere_ece": on_sphere["ece"], "scale": scale}
    return row


def plain_fit(logits: Tensor, labels: Tensor) -> float:
    """The temperature of least NLL, within the same range."""

    def nll(power: float) -> float:
        return calibration_metrics(logits / math.exp(power), labels)["nll"]

    return math.exp(minimize_scalar(nll, bounds=[math.log(limit) for limit in RANGE], method="bounded").x)


def draws(variant: str, images: int) -> Iterator[dict[str, float]]:
    """The NLL of the measured images of seed 0, unscaled and by either fit to `images` of the held-out ones."""
    logits, _, labels, _ = outputs(variant, 0)
    generator = torch.Generator().manual_seed(images)
    measured = slice(HELD_OUT, None)

    def nll(temperature: float) -> float:
        return calibration_metrics(logits[measured] / temperature, labels[measured])["nll"]

    for _ in range(DRAWS):
        chosen = torch.randperm(HELD_OUT, generator=generator)[:images]
        own = logits[chosen], labels[chosen]
        yield {"unscaled": nll(1.0), "plain": nll(plain_fit(*own)), "smoothed": nll(fit_temperature(*own))}


def table(path: Path) -> str:
    """The Markdown table of the variants."""
    rows: dict[str, list[dict[str, float]]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        rows.setdefault(row["variant"], []).append(row)
    lines = [f"| trained as | {' | '.join(COLUMNS)} |", f"|---|{'---:|' * len(COLUMNS)}"]
    for variant, found in rows.items():
        cells = [
            _cell([factor * row[name] for row in found if name in row], decimals)
            for name, factor, decimals in COLUMNS.values()
        ]
        lines.append(f"| {variant} | {' | '.join(cells)} |")
    return "\n".join(lines)


def temperature_table(path: Path) -> str:
    """The Markdown table of the numbers of held-out images."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [
        "| method | held-out images | unscaled | plain fit | its worst | our fit | its worst |",
        f"|---|{'---:|' * 6}",
    ]
    for variant, images in dict.fromkeys((row["variant"], row["images"]) for row in rows):
        found = [row for row in rows if (row["variant"], row["images"]) == (variant, images)]
        cells = [f"{found[0]['unscaled']:.3f}"]
        for name in ("plain", "smoothed"):
            values = [row[name] for row in found]
            cells += [_cell(values, 3), f"{max(values):.3f}"]
        lines.append(f"| {variant} | {images} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: list[float], decimals: int) -> str:
    if not values:
        return ""
    summary = summarize(values)
    return f"{summary.mean:.{decimals}f} ± {summary.deviation or 0:.{decimals}f}"


def main(runs: Path, temperatures: Path) -> None:
    with runs.open("w") as file:
        for variant in VARIANTS:
            for seed in range(SEEDS):
                print(json.dumps({"variant": variant, "seed": seed, **run(variant, seed)}), file=file, flush=True)
    with temperatures.open("w") as file:
        for variant in ("msp", "dsui"):
            for images in SIZES:
                for number, row in enumerate(draws(variant, images)):
                    about = {"variant": variant, "seed": number, "images": images}
                    print(json.dumps({**about, **row}), file=file, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
