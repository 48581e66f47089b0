"""DS-UI predicting by its mixtures: the posterior of the tempered class scores in place of the classifier's softmax.

    p = softmax((l - mean_i l_i) min(1, |h| / sqrt(M))),   l_i = ln omega_i + logsumexp_j (ln eta_ij + ln N_ij(z) / tau)

Features that were shorter than sqrt(M) before the sphere predict with less confidence, as those of `dsui.methods.dsui`
do. It trains as DS-UI does and reads DS-UI's weights.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from dsui.methods.dsui import DualSupervised
from dsui.outputs import Outputs, share_of_radius


class DensityPrediction(DualSupervised):
    """Options are those of `DualSupervised`."""

    reads_weights_of: ClassVar[tuple[str, ...]] = ("dsui",)

    def predict(self, images: Tensor) -> Outputs:
        """The scores are no linear function of the features, so that there is no last layer to tell of."""
        both = super().predict(images)
        assert both.class_scores is not None
        scores = both.class_scores - both.class_scores.mean(1, keepdim=True)
        if both.norm is not None:
            scores = scores * share_of_radius(both.norm, both.features.shape[1])[:, None]
        return Outputs(both.features, scores, log_joint=both.log_joint)
