"""How fast `dsui serve` answers over this machine's loopback, beside a bare ONNX Runtime loop in the same run.

Every request is one PNG of 32x32 random colour pixels to /v1/predict. The clients are raw sockets in one event loop of
another process (`dsui.benchmarks.serving_clients`); each sends its next request when the last is answered. The bare
loop runs batches of 32 images that are already decoded, with as many threads as ONNX Runtime chooses, in a process
that does nothing else meanwhile; of its two ways to wait for work, spinning and sleeping, the faster one counts. Turns
of server and loop alternate, and figures are medians. Images per second of processor time are of the server's process,
without the clients'.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
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

from dsui.benchmarks.serving_clients import Load, Measured
from dsui.deploy.predictor import Predictor

SIZE, BATCH, REPEATS = 32, 32, 3
SECONDS = 4.0
"""Of each turn, about."""


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


def write_body(path: Path) -> int:
    """The image that every client sends; its size in bytes."""
    stream = BytesIO()
    noise = np.random.default_rng(1).integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8)
    Image.fromarray(noise).save(stream, "PNG")
    return path.write_bytes(stream.getvalue())


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
        command = [sys.executable, "-m", "dsui.benchmarks.serving_clients", json.dumps(asdict(load))]
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
    """ONNX Runtime alone, with threads that spin between passes and with threads that do not: whichever is faster."""

    def __init__(self, model: Path) -> None:
        self._sessions = [_session(model, spinning) for spinning in ("1", "0")]
        generator = np.random.default_rng(0)
        self._images = generator.integers(0, 256, (BATCH, SIZE, SIZE, 3)).astype(np.uint8)
        for each in self._sessions:
            each.run(None, {"images": self._images})

    def speeds(self) -> tuple[float, float]:
        """Images per second, and per second of processor time, over SECONDS."""
        return max(self._speeds(each, SECONDS / len(self._sessions)) for each in self._sessions)

    def _speeds(self, session: onnxruntime.InferenceSession, seconds: float) -> tuple[float, float]:
        begin, processor, batches = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - begin < seconds:
            session.run(None, {"images": self._images})
            batches += 1
        images = batches * BATCH
        return images / (time.perf_counter() - begin), images / (time.process_time() - processor)


def _session(model: Path, spinning: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors; it remarks on parts of a graph that it leaves out
    options.add_session_config_entry("session.intra_op.allow_spinning", spinning)
    return onnxruntime.InferenceSession(model, options)


def measure(server: Served, bare: BareLoop, body: Path, clients: int, repeats: int = REPEATS) -> Line:
    server.answer(body, clients, 2 * clients)
    trial = server.answer(body, clients, 4 * clients)
    requests = max(4 * clients, int(SECONDS * 4 * clients / trial.seconds))
    turns = []
    for _ in range(repeats):
        alone = bare.speeds()
        before = server.processor_seconds()
        found = server.answer(body, clients, requests)
        spent = server.processor_seconds() - before
        latencies = np.quantile(found.latencies, [0.5, 0.99])
        turns.append((*alone, requests / found.seconds, requests / max(spent, 0.01), *latencies, found.refused))
    bare_speed, bare_processor, speed, processor, p50, p99, _ = map(statistics.median, zip(*turns, strict=True))
    refused = sum(int(turn[-1]) for turn in turns)
    return Line(clients, bare_speed, speed, float(p50), float(p99), refused, bare_processor, processor)
