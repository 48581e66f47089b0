"""What the MoGMM-FC layer knows of a batch, after one forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from dsui.density import mixture_log_prob


@dataclass(frozen=True, eq=False)
class HeadOutput:
    """What the head knows of a batch; densities are float64 where `precision` is exact."""

    logits: Tensor
    """[B, C] y_i = s W_i z, the classifier stream."""
    class_scores: Tensor
    """[B, C] l_i, tempered inside the mixture."""
    features: Tensor
    """[B, M] z."""
    norm: Tensor
    """[B] |h|, what the projection drops."""
    component_log_prob: Tensor
    """[B, C, K] ln N(z; mu_ij, diag b_ij), or the log-density of another family."""
    log_mixing: Tensor
    """[C, K] ln eta."""
    log_prior: Tensor
    """[C] ln omega."""

    @cached_property
    def log_joint(self) -> Tensor:
        """[B, C] ln omega_i + ln GMM_i(z), untempered; computed on first use, as most objectives do not need it."""
        return self.log_prior + mixture_log_prob(self.component_log_prob, self.log_mixing)

    def rows(self, rows: slice) -> HeadOutput:
        """The same for a part of the batch."""
        return HeadOutput(
            logits=self.logits[rows],
            class_scores=self.class_scores[rows],
            features=self.features[rows],
            norm=self.norm[rows],
            component_log_prob=self.component_log_prob[rows],
            log_mixing=self.log_mixing,
            log_prior=self.log_prior,
        )
