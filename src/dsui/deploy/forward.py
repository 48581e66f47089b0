"""8-bit images through a trained method, as evaluation does it, the same numbers whenever it is repeated."""

from __future__ import annotations

from threading import Lock

import torch
from torch import Tensor

from dsui.data.augment import Transform
from dsui.evaluation.outputs import Outputs
from dsui.methods.method import Method

SAMPLING_SEED = 0
_ALONE = Lock()
"""Random numbers and the precision of products are those of the whole process, so threads wait for each other."""


@torch.no_grad()
def forward(method: Method, transform: Transform, images: Tensor) -> Outputs:
    """Outputs of uint8 images [B, C, H, W] on their device, of a method in evaluation mode.

    A method that samples draws alike for every batch; the caller's random numbers go on as if nothing had happened.
    """
    device, on_gpu = images.device, images.is_cuda
    inputs = transform.plain(images)
    if on_gpu:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    with _ALONE, torch.random.fork_rng([device] if on_gpu else []):
        torch.default_generator.manual_seed(SAMPLING_SEED)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(SAMPLING_SEED)
        return method.predict(inputs)
