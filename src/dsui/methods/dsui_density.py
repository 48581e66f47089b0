"""DS-UI predicting by its mixtures: the posterior of the tempered class scores in place of the classifier's softmax.

    p = softmax((l - mean_i l_i) min(1, |h| / sqrt(M))),   l_i = ln omega_i + logsumexp_j (ln eta_ij + ln N_ij(z) / tau)

Features that were shorter than sqrt(M) before the sphere predict with less confidence, as in `dsui.methods.dsui`. It
trains as DS-UI does and reads DS-UI's weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from torch import Tensor

from dsui.methods.dsui import DualSupervised
from dsui.outputs import Outputs, share_of_radius


class DensityPrediction(DualSupervised):
    """Takes the options of `DualSupervised`."""

    reads_weights_of: ClassVar[tuple[str, ...]] = ("dsui",)
    takes_copies: bool = True
    takes_doubles: bool = True
    adjustable: bool = True

    def predict(self, images: Tensor) -> Outputs:
        """Without a last layer, because the scores are not a linear function of the features."""
        outputs = super().predict(images)
        assert outputs.class_scores is not None
        scores = outputs.class_scores - outputs.class_scores.mean(1, keepdim=True)
        if outputs.norm is not None:
            scores = scores * share_of_radius(outputs.norm, outputs.features.shape[1])[:, None]
        return Outputs(outputs.features, scores, log_joint=outputs.log_joint)

    def first_classes(self, outputs: Outputs, count: int, share: float) -> Outputs:
        """The scores are centred again, over the classes that are left."""
        outputs = super().first_classes(outputs, count, share)
        return replace(outputs, logits=outputs.logits - outputs.logits.mean(1, keepdim=True))
