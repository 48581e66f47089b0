"""Energy (Liu et al., NeurIPS 2020): u = -T ln sum_c exp(y_c / T)."""

from __future__ import annotations

from torch import Tensor

from dsui.checks import check_positive
from dsui.detectors.detector import Detector
from dsui.outputs import Outputs
from dsui.scores import energy


class Energy(Detector):
    """Needs no fitting; `temperature` flattens the logits."""

    needs_fit = False
    needs_scale = True

    def __init__(self, temperature: float = 1.0) -> None:
        check_positive("temperature", temperature)
        self.temperature = temperature

    def _score(self, outputs: Outputs) -> Tensor:
        return self.temperature * energy(outputs.logits / self.temperature)
