"""Virtual-logit matching (Wang et al., CVPR 2022): the part of a feature along which training
features hardly vary, as one more logit.

    o = -W^+ b,   R = the eigenvectors of sum_n (z_n - o)(z_n - o)^T beyond the D largest
    u = a |R^T (z - o)| - ln sum_c exp(y_c),   a = mean_n max_c y_nc / mean_n |R^T (z_n - o)|

W and b are the last layer, z_n and y_n features and logits of the training samples.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from dsui.detectors.detector import Detector, rows
from dsui.outputs import Outputs
from dsui.scores import energy


class ViM(Detector):
    """`dimension` is D; by default 1000 of 2048 features or more, 512 of 768 or more, otherwise half of them."""

    needs_weight = True
    learns: ClassVar = {"_origin": Tensor, "_residual": Tensor, "_share": Tensor}

    def __init__(self, dimension: int | None = None) -> None:
        self.dimension = dimension

    def _fit(self, train: Outputs) -> None:
        width = train.features.shape[1]
        dimension = default_dimension(width) if self.dimension is None else self.dimension
        if not 0 <= dimension <= width:
            raise ValueError(f"dimension must be between 0 and the number of features, {width}, got {dimension}.")
        assert train.weight is not None
        weight = train.weight.double()
        bias = weight.new_zeros(len(weight)) if train.bias is None else train.bias.double()
        self._origin = -torch.linalg.pinv(weight) @ bias
        moment = weight.new_zeros(width, width)
        for part in rows(train):
            moved = part.features - self._origin
            moment.addmm_(moved.T, moved)
        self._residual = torch.linalg.eigh(moment).eigenvectors[:, : width - dimension]  # eigenvalues ascend
        length = sum(self._length(part).sum() for part in rows(train))
        best = train.logits.amax(1).double().sum()
        self._share = best / length if length > 0 else torch.zeros_like(best)

    def _score(self, outputs: Outputs) -> Tensor:
        return self._share * self._length(outputs) + energy(outputs.logits)

    def _length(self, outputs: Outputs) -> Tensor:
        length: Tensor = torch.linalg.vector_norm((outputs.features - self._origin) @ self._residual, dim=1)
        return length


def default_dimension(width: int) -> int:
    """The rule of the authors' code."""
    if width >= 2048:
        return 1000
    return 512 if width >= 768 else width // 2
