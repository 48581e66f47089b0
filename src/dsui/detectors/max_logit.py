"""Maximum logit (Hendrycks et al., ICML 2022): u = -max_c y_c."""

from __future__ import annotations

from torch import Tensor

from dsui.detectors.detector import Detector
from dsui.outputs import Outputs


class MaxLogit(Detector):
    """Needs no fitting."""

    needs_fit = False

    def _score(self, outputs: Outputs) -> Tensor:
        return -outputs.logits.amax(1)
