"""Work as one CUDA graph, as training replays a step: what the GPU computes without waiting for Python."""

from __future__ import annotations

from collections.abc import Callable

import torch

REPLAYS = 20


def graph_milliseconds(work: Callable[[], object]) -> Callable[[], float]:
    """Capture `work` once, or raise RuntimeError where it cannot be; each call then times twenty replays."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):  # where gradients were first computed
        work()

    def replay() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / REPLAYS

    return replay
