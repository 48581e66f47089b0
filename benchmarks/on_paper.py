"""ImageNet-1k on paper: times computed from committed measurements, and the memory of the head, counted and measured.

    python benchmarks/on_paper.py [--out benchmarks/imagenet-on-paper.md]

The head of K components for each of C classes on M features, trained on batches of B in float32, holds so many numbers:

    parameters  P = 2 C K M + C K + 1                        means, log-variances, mixing logits, logit scale
    gradients   P
    Adam        2 P                                          two moments
    kept        2 C K M + B C K + 4 B M + C M + 2 B C + 4 C K    for the backward pass, and a few vectors of length B
    backward    4 C K M + B C K                              gradients that exist at the same time as all these

The last are those of the largest kept matrix, of the components' densities, and of means and log-variances once more:
those of the regulariser and the logits are summed before the densities give theirs. All but the last are counted here,
on a CPU, with a real head; the sum stands beside what `head_memory.py` measured. Times are arithmetic.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import measuring
from dsui import DualSupervisedLoss, MoGMMHead
from dsui.fused import WORTH_COMPILING

HERE = Path(__file__).parent
IMAGES, EPOCHS, SIDE = 1_281_167, 90, 224
"""ImageNet-1k's training images, and the usual length and side."""
BATCH, COMPONENTS = 256, 8
COUNTED = [(512, 100, COMPONENTS, BATCH), (512, 1000, COMPONENTS, BATCH), (2048, 1000, COMPONENTS, BATCH)]
"""M, C, K, B of the heads that are built and counted."""
TOLERANCE = 0.01
"""Vectors of length B are left out of the formula."""
LARGE = [(512, 21_000, COMPONENTS, BATCH), (2048, 21_000, COMPONENTS, BATCH)]


class Numbers(NamedTuple):
    """How many numbers of four bytes a head holds in training."""

    parameters: int
    gradients: int
    adam: int
    kept: int
    backward: int = 0

    def mib(self) -> list[float]:
        return [4 * count / 2**20 for count in (*self, sum(self))]


def expected(m: int, c: int, k: int, b: int) -> Numbers:
    p = 2 * c * k * m + c * k + 1
    kept = 2 * c * k * m + b * c * k + 4 * b * m + c * m + 2 * b * c + 4 * c * k
    return Numbers(p, p, 2 * p, kept, 4 * c * k * m + b * c * k)


def counted(m: int, c: int, k: int, b: int) -> Numbers:
    """A step of a head on this machine. What autograd keeps is counted by its storages, each once."""
    head, loss = MoGMMHead(m, c, k), DualSupervisedLoss()
    adam = torch.optim.Adam(head.parameters())
    x, labels = torch.randn(b, m, requires_grad=True), torch.randint(c, (b,))
    outside = {tensor.untyped_storage().data_ptr() for tensor in (*head.parameters(), *head.buffers(), x, labels)}
    kept: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in outside:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        value = loss(head(x), labels, head)
    value.backward()
    adam.step()
    parameters = list(head.parameters())
    moments = [adam.state[each][name] for each in parameters for name in ("exp_avg", "exp_avg_sq")]
    gradients = [each.grad for each in parameters if each.grad is not None]
    in_autograd = sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) // 4
    own, of_gradients, of_adam = (sum(each.numel() for each in some) for some in (parameters, gradients, moments))
    found, formula = Numbers(own, of_gradients, of_adam, in_autograd), expected(m, c, k, b)
    assert found[:3] == formula[:3], f"{found} is not {formula}"
    assert abs(found.kept / formula.kept - 1) < TOLERANCE, f"{found} is not {formula}"
    return found._replace(backward=formula.backward)


def resnet50_gflop() -> float:
    """Forward and backward pass of an ImageNet ResNet-50, for one image."""
    from transformers import ResNetConfig, ResNetModel

    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        ResNetModel(ResNetConfig())(torch.empty(1, 3, SIDE, SIDE)).pooler_output.sum().backward()
    return float(counter.get_total_flops()) / 1e9


def committed(file: str, pattern: str) -> float:
    """A figure of a committed page of this folder."""
    found = re.search(pattern, (HERE / file).read_text())
    assert found is not None, f"{file} has no {pattern}"
    return float(found[1].replace(",", ""))


def measured_mib(m: int, c: int) -> float | None:
    """What a step of the head took on the H200, with its input and Adam's moments."""
    page = (HERE / "head-memory-h200.md").read_text()
    found = re.search(rf"^\| {m:,} \| {c:,} \|.* ([\d,]+) \|$", page, re.MULTILINE)
    return float(found[1].replace(",", "")) if found else None


def report() -> str:
    rate = committed("training-h200.md", r"run at (\d+) TFLOP/s over the whole step")
    jpeg = committed("data-cpu.md", r"\| 500x375 \| dsui \| \d+ \| [\d.]+ \| (\d+) \|")
    small, large = (committed("head-h200.md", rf"\| {c} \| ([\d.]+) \| [\d.]+ \| [\d.]+ \|\n") for c in (200, 1000))
    processors = committed("training-h200.md", r"NVIDIA H200, (\d+) processors")
    gflop = resnet50_gflop()
    speed = 1000 * rate / gflop
    step = 1000 * BATCH / speed
    slope = (large - small) / 800
    times = {1000: large, 21_000: large + 20_000 * slope}
    decoded = 1000 / jpeg
    lines = [
        "# ImageNet-1k on paper",
        "",
        "**Nothing on this page was run on ImageNet or on several GPUs.** Times are arithmetic from committed figures "
        "of one H200; the memory of the head is counted on a CPU and was measured on the H200. "
        "Generated by `python benchmarks/on_paper.py`.",
        "",
        "## Time",
        "",
        f"ResNet-50 at {SIDE} x {SIDE}, {EPOCHS} epochs of {IMAGES:,} images, batches of {BATCH} for each GPU.",
        "",
        "| quantity | value | from |",
        "|---|---:|---|",
        f"| forward and backward pass of an image | {gflop:.1f} GFLOP | counted |",
        f"| rate of a whole step | {rate:.0f} TFLOP/s | ResNet18 at 32 x 32, [training-h200](training-h200.md) |",
        f"| one GPU | {speed:,.0f} images/s | the rate by the GFLOP |",
        f"| a step of {BATCH} | {step:.1f} ms | |",
        f"| densities of the head in it, C = 1,000 | {large:.1f} ms | M 2048, K 8, [head-h200](head-h200.md) |",
        f"| the same, C = 21,000 | {times[21_000]:.1f} ms | {1000 * slope:.2f} microseconds for each further class |",
        f"| JPEG files, a processor | {decoded:.0f} images/s | {jpeg:.0f} ms of 500 x 375, [data-cpu](data-cpu.md) |",
        "",
        "| GPUs | images/s | hours, C = 1,000 | hours, C = 21,000 | processors that read files |",
        "|---:|---:|---:|---:|---:|",
    ]
    for gpus in (1, 8, 16):
        hours = [EPOCHS * IMAGES / gpus / BATCH * (step + times[c]) / 3.6e6 for c in (1000, 21_000)]
        each = BATCH / (step + large) * 1000
        lines.append(
            f"| {gpus} | {gpus * each:,.0f} | {hours[0]:.1f} | {hours[1]:.1f} | {gpus * each / decoded:,.0f} |"
        )
    lines += [
        "",
        "Hours are those of the same images with 1,000 or 21,000 classes. Read them as the least they can be: another "
        "network at a larger size need not reach the rate of the one that was measured, the optimizer of a larger head "
        "is left out, and GPUs are taken to lose nothing to each other and to wait for no file.",
        "",
        "## Memory of the head",
        "",
        "float32, MiB. In the rows `counted`, parameters, gradients, Adam's moments and what is kept for the backward "
        "pass were counted in a step of a real head; the formulas of the script agree exactly, and within 1 % for what "
        "is kept. What the backward pass adds is by the formula in all rows. The last column was measured on one H200: "
        "the step's peak, the layer's input and Adam's moments ([head-memory-h200](head-memory-h200.md)).",
        "",
        "| M | C | K | B | parameters | gradients | Adam | kept | in the backward pass | together | | measured |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|",
    ]
    for kind, every, count in (("counted", COUNTED, counted), ("formula", LARGE, expected)):
        for sizes in every:
            cells = [f"{size:,}" for size in sizes] + [f"{mib:,.1f}" for mib in count(*sizes).mib()]
            found = measured_mib(*sizes[:2])
            lines.append(f"| {' | '.join(cells)} | {kind} | {'-' if found is None else f'{found:,.0f}'} |")
    at_1000, at_21000 = (expected(2048, c, COMPONENTS, BATCH) for c in (1000, 21_000))
    both = (at_1000, 1000), (at_21000, 21_000)
    largest = measured_mib(2048, 21_000)
    assert largest is not None
    one_set = [4 * (sum(each) - each.backward + 2 * COMPONENTS * 2048 * c) for each, c in both]
    lines += [
        "",
        "When the densities give their gradients, those of the regulariser and the logits are there already: a second "
        "set, which the formula left out before the measurement. It then gave "
        f"{one_set[0] / 2**20:.0f} MiB for M 2048, C 1,000 and {one_set[1] / 2**30:.0f} GiB for C 21,000, both with "
        "Adam's moments. At M 512, C 1,000 more is measured than counted, because with fewer than "
        f"{WORTH_COMPILING:,} means in all the elementwise formulas are not compiled and hold intermediate values.",
        "",
        "## What would bind first",
        "",
        "1. **Reading files.** A GPU takes the JPEG files that "
        f"{1000 * BATCH / (step + large) / decoded:.0f} processors decode; the machine of the H200 had "
        f"{processors:.0f}. [Embeddings](../docs/backbones.md), or small images that fit into the GPU's "
        "memory, are read once.",
        "2. **The head's gradients between GPUs, at C = 21,000.** "
        f"A step sums {4 * at_21000.gradients / 2**30:.1f} GiB "
        f"over all GPUs, against {4 * at_1000.gradients / 2**30:.2f} at C = 1,000.",
        f"3. **Time of the densities at C = 21,000**: {100 * times[21_000] / (step + times[21_000]):.0f} % of a step, "
        f"against {100 * large / (step + large):.0f} % at C = 1,000.",
        f"4. Memory last: {largest / 1024:.1f} GiB for the head at C = 21,000, M 2048, measured, of an H200's 141 GB; "
        "averaged weights and the buckets of DistributedDataParallel, which were not run, would make it "
        f"{largest / 1024 + 8 * at_21000.parameters / 2**30:.0f} GiB.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    measuring.show(report, measuring.command(__doc__).parse_args().out)
