"""Who takes the derivatives: the backward passes written here, or PyTorch.

The backward passes in `dsui.density` save memory and operations, and they can be differentiated again. They serve
`backward()` and `torch.autograd` alone. Where something else reads the formulas, it gets them written in PyTorch's own
operations: `torch.func`, forward-mode differentiation, and the compiler, which plans its own backward pass.


The compiler drops terms of second derivatives in silence, so a compiled model refuses them.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def by_pytorch() -> bool:
    """Whether a formula has to be written in PyTorch's own operations here."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()  # what autograd.Function asks before it refuses
        or forward_ad._current_level >= 0
    )


def records(compiled: bool) -> bool:
    """Whether a backward pass is recorded to be differentiated again, which a `compiled` model refuses."""
    recorded = torch.is_grad_enabled()
    if recorded and compiled:
        raise ValueError("a compiled head has no second derivatives; call it without torch.compile for them.")
    return recorded
