"""Requests per second and latencies of `dsui serve` against a bare ONNX Runtime loop, on this machine's loopback.

    python benchmarks/serving.py [--out benchmarks/serving-cpu.md] [--model model.onnx]

Every request is one PNG of 32x32 random colour pixels to /v1/predict. The clients are raw sockets in one event loop of
another process (`serving_clients.py`); each sends its next request when the last is answered. The bare loop runs
batches of 32 images that are already decoded, with the threads that ONNX Runtime chooses, in a process that does
nothing else meanwhile. Turns of server and loop alternate, and figures are medians. Images per second of processor time
are of the server's process, without the clients'.

Without --model, untrained networks of two sizes are exported: a run of one epoch on random images.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import onnxruntime
import torch
from PIL import Image

import measuring
from dsui.deploy.predictor import Predictor
from serving_clients import Load, Measured

CLIENTS, SIZE, BATCH, REPEATS = (1, 16, 64, 200), 32, 32, 3
SECONDS = 4.0
"""Of each turn, about."""
BACKBONES = ("resnet18", "small")
MEMORY_REQUESTS, MEMORY_STEPS, MEMORY_CLIENTS = 20_000, 5, 64
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Line:
    """Medians of the turns with so many clients."""

    clients: int
    bare: float
    served: float
    p50: float
    p99: float
    refused: int
    bare_of_processor: float
    served_of_processor: float

    def cells(self) -> str:
        return (
            f"| {self.clients} | {self.served:,.0f} | {self.bare:,.0f} | {self.served / self.bare:.2f} | "
            f"{1000 * self.p50:,.1f} | {1000 * self.p99:,.1f} | {self.refused} | "
            f"{self.served_of_processor / self.bare_of_processor:.2f} |"
        )


HEADER = (
    "| clients | served images/s | bare images/s | ratio | p50 ms | p99 ms | refused | ratio of images per "
    "processor second |\n|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def run_dsui(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "dsui", *words, "--quiet"], check=True)  # noqa: S603


def export_untrained(backbone: str, folder: Path) -> Path:
    """An ONNX file with a threshold, of a network that has seen a few random images once."""
    generator = np.random.default_rng(0)
    for label in range(10):
        place = folder / "images" / str(label)
        place.mkdir(parents=True, exist_ok=True)
        for number in range(30):
            Image.fromarray(generator.integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8)).save(place / f"{number}.png")
    run, model = folder / f"run-{backbone}", folder / f"{backbone}.onnx"
    settings = ("--recipe", "demo", "--set", "epochs=1", "--calibration", "0.3", "--size", str(SIZE), "--device", "cpu")
    run_dsui("train", "--data", f"folder:{folder / 'images'}", "--backbone", backbone, *settings, "--out", str(run))
    predictor = Predictor.load(run, torch.device("cpu"))
    predictor.threshold(coverage=0.9)
    predictor.save_threshold()
    run_dsui("export", str(run), str(model))
    return model


class Served:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.pid = process.pid
        url = urlsplit(json.loads(process.stdout.readline())["address"])
        self.host, self.port = str(url.hostname), int(url.port or 0)

    def answer(self, body: Path, clients: int, requests: int) -> Measured:
        load = Load(self.host, self.port, "/v1/predict", "image/png", str(body), clients, requests)
        command = [sys.executable, str(HERE / "serving_clients.py"), json.dumps(asdict(load))]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        return Measured(**json.loads(done.stdout))

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """MiB that are resident."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


@contextmanager
def served(model: Path) -> Iterator[Served]:
    command = [sys.executable, "-m", "dsui", "serve", str(model), "--port", "0", "--json", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603
        try:
            yield Served(process)
        finally:
            process.terminate()


class BareLoop:
    """ONNX Runtime alone."""

    def __init__(self, model: Path) -> None:
        self._session = onnxruntime.InferenceSession(model)
        generator = np.random.default_rng(0)
        self._images = generator.integers(0, 256, (BATCH, SIZE, SIZE, 3)).astype(np.uint8)
        self._session.run(None, {"images": self._images})

    def speeds(self) -> tuple[float, float]:
        """Images per second, and per second of processor time, over SECONDS."""
        begin, processor, batches = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - begin < SECONDS:
            self._session.run(None, {"images": self._images})
            batches += 1
        images = batches * BATCH
        return images / (time.perf_counter() - begin), images / (time.process_time() - processor)


def measure(server: Served, bare: BareLoop, body: Path, clients: int) -> Line:
    server.answer(body, clients, 2 * clients)
    trial = server.answer(body, clients, 4 * clients)
    requests = max(4 * clients, int(SECONDS * 4 * clients / trial.seconds))
    turns = []
    for _ in range(REPEATS):
        alone = bare.speeds()
        before = server.processor_seconds()
        found = server.answer(body, clients, requests)
        spent = server.processor_seconds() - before
        latencies = np.quantile(found.latencies, [0.5, 0.99])
        turns.append((*alone, requests / found.seconds, requests / max(spent, 0.01), *latencies, found.refused))
    bare_speed, bare_processor, speed, processor, p50, p99, _ = map(statistics.median, zip(*turns, strict=True))
    refused = sum(int(turn[-1]) for turn in turns)
    return Line(clients, bare_speed, speed, float(p50), float(p99), refused, bare_processor, processor)


def memory_line(server: Served, body: Path) -> str:
    """Resident memory while requests go on."""
    server.answer(body, MEMORY_CLIENTS, MEMORY_REQUESTS // 10)
    shown = [server.memory()]
    for _ in range(MEMORY_STEPS):
        server.answer(body, MEMORY_CLIENTS, MEMORY_REQUESTS // MEMORY_STEPS)
        shown.append(server.memory())
    return (
        f"Resident memory of the server after {MEMORY_REQUESTS // 10:,} requests, and then after each "
        f"{MEMORY_REQUESTS // MEMORY_STEPS:,} of {MEMORY_REQUESTS:,} more: "
        f"{', '.join(f'{each:.0f}' for each in shown)} MiB."
    )


def report(model: Path | None) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stream = BytesIO()
        noise = np.random.default_rng(1).integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8)
        Image.fromarray(noise).save(stream, "PNG")
        body = folder / "body.png"
        body.write_bytes(stream.getvalue())
        models = {model.name: model} if model else {each: export_untrained(each, folder) for each in BACKBONES}
        parts = []
        for title, file in models.items():
            bare = BareLoop(file)
            with served(file) as server:
                lines = [measure(server, bare, body, clients).cells() for clients in CLIENTS]
                memory = memory_line(server, body) if title == list(models)[-1] else ""
            parts.append("\n".join([f"## {title}", "", HEADER, *lines, *(["", memory] if memory else [])]))
    processors = os.cpu_count()
    return (
        f"# Serving: {platform.machine()}, {processors} processors\n\n"
        f"ONNX Runtime {onnxruntime.__version__}, uvicorn with h11, loopback; one PNG of {SIZE}x{SIZE} random colour "
        f"pixels ({len(stream.getvalue()):,} bytes) a request to /v1/predict, raw sockets in one other process; "
        f"bare loop: decoded batches of {BATCH}. Medians of {REPEATS} alternating turns of about {SECONDS:.0f} s; load "
        f"average {os.getloadavg()[0]:.1f} at the end. Generated by `python benchmarks/serving.py`.\n\n"
        + "\n\n".join(parts)
        + "\n"
    )


def main() -> None:
    parser = measuring.command(__doc__)
    parser.add_argument("--model", type=Path, help="an exported file that takes 32x32 colour images")
    options = parser.parse_args()
    measuring.show(lambda: report(options.model), options.out)


if __name__ == "__main__":
    main()
