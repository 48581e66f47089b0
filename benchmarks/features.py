"""Time and peak memory to train on 100,000 x 768 features of 100 classes, from the file to the finished run.

    python benchmarks/features.py [--threads 2] [--repeats 2] [--epochs 30] [--out benchmarks/features-cpu.md]

The features are drawn: each class has a mean of its own, and the classes overlap, so that there are errors to find.
Each training is a process of its own with so many threads. Its time is that of the whole command: it starts Python,
reads and checks the file, trains, measures the tenth of the rows that is held out, and writes the run. Peak
memory is that of the process, the file included. Where others use the machine, the wall time says little; seconds of
the processor are those of all threads together, and with one thread more than two free cores take. The rival is a
linear probe as most people write it: a Linear layer on standardised features and AdamW, fed by a DataLoader over
tensors in memory, with the same number of epochs, batch and schedule, and without held-out rows, densities or a run on
disk. Repeats are interleaved.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import measuring

ROWS, WIDTH, CLASSES, BATCH, RATE = 100_000, 768, 100, 512, 5e-3
SPREAD = 0.16
"""Of the classes' means, in deviations of the features: a linear probe then makes errors."""
WAYS = {"dsui train, dsui": "dsui", "dsui train, msp": "msp", "linear probe": ""}


class Measured(NamedTuple):
    seconds: float
    of_processor: float
    mebibytes: float
    accuracy: float


def write_features(path: Path) -> None:
    """A file of features with labels; a fifth of the rows, by `dsui`'s rule, is for test."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(ROWS) % CLASSES
    means = torch.randn(CLASSES, WIDTH, generator=generator) * SPREAD
    save_file({"features": torch.randn(ROWS, WIDTH, generator=generator) + means[labels], "labels": labels}, path)


def linear_probe(path: Path, epochs: int) -> float:
    """Accuracy on its own training rows; as many as `dsui train` takes: those of the rule without a tenth."""
    torch.manual_seed(0)
    file = load_file(path)
    count = round(0.72 * ROWS)
    features, labels = file["features"][:count], file["labels"][:count]
    model = nn.Sequential(nn.BatchNorm1d(WIDTH, affine=False), nn.Linear(WIDTH, CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=5e-4)
    loader = DataLoader(TensorDataset(features, labels), BATCH, shuffle=True, drop_last=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    right = torch.zeros(())
    for _ in range(epochs):
        right.zero_()
        for x, y in loader:
            logits = model(x)
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits, y).backward()
            optimizer.step()
            schedule.step()
            right += (logits.argmax(1) == y).sum()
    return right.item() / (len(loader) * BATCH)


def measure(method: str, file: Path, out: Path, options: argparse.Namespace) -> Measured:
    words = ["-m", "dsui", "train", "--data", f"features:{file}", "--method", method, "--out", str(out)]
    words = [*words, "--set", f"epochs={options.epochs}", "--quiet", "--json"]
    words = words if method else [__file__, "--probe", str(file), "--epochs", str(options.epochs)]
    began = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    if status != 0:
        raise SystemExit(f"{' '.join(words)} failed with status {status}")
    answer = json.loads(printed)
    accuracy = answer["held_out"]["accuracy"] if method else answer
    return Measured(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, accuracy)


def report(options: argparse.Namespace) -> str:
    loads = []
    found: dict[str, list[Measured]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "features.safetensors")
        # in a process of its own: a child's peak memory begins with the memory of its parent
        subprocess.run([sys.executable, __file__, "--write", str(file)], check=True)  # noqa: S603
        for repeat in range(options.repeats):
            for way, method in WAYS.items():
                found[way].append(measure(method, file, Path(folder, f"{method}-{repeat}"), options))
                loads.append(os.getloadavg()[0])
    lines = [
        f"# Training on features: {platform.machine()}, {os.cpu_count()} processors",
        "",
        f"torch {torch.__version__}, threads: {options.threads}, epochs: {options.epochs}, repeats: {options.repeats}, "
        f"load average {min(loads):.1f} to {max(loads):.1f} with this; {ROWS:,} x {WIDTH} features in float32 "
        f"({ROWS * WIDTH * 4 / 2**20:,.0f} MiB), {CLASSES} classes, batches of {BATCH}. Accuracy is that on held-out "
        "rows; the probe's, which holds none out, is that on its training rows. Generated by "
        f"`python benchmarks/features.py --threads {options.threads}`.",
        "",
        "| way | seconds of the processor | seconds | peak memory, MiB | accuracy % |",
        "|---|---|---|---:|---:|",
    ]
    for way, runs in found.items():
        processor = ", ".join(f"{run.of_processor:.0f}" for run in runs)
        wall = ", ".join(f"{run.seconds:.0f}" for run in runs)
        peak, accuracy = max(run.mebibytes for run in runs), statistics.mean(run.accuracy for run in runs)
        lines.append(f"| {way} | {processor} | {wall} | {peak:,.0f} | {100 * accuracy:.1f} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = measuring.command(__doc__)
    parser.add_argument("--probe", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args()
    if options.probe is not None:
        print(json.dumps(linear_probe(options.probe, options.epochs)))
    elif options.write is not None:
        write_features(options.write)
    else:
        measuring.show(lambda: report(options), options.out)


if __name__ == "__main__":
    main()
