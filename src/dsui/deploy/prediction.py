"""What a model predicts for images: the class, the uncertainty, and whether to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsui.errors import DsuiError
from dsui.outputs import Outputs
from dsui.runs.threshold import Threshold
from dsui.scores import Reference, all_scores, entropy, log_density

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class Prediction:
    """The prediction of N images of C classes. Where an array is expected, it is the array of its labels."""

    label: NDArray[Any]
    """[N] names of classes."""
    probabilities: NDArray[np.float64]
    """[N, C]"""
    max_probability: NDArray[np.float64]
    """[N] the probability of the label."""
    entropy: NDArray[np.float64]
    """[N] the entropy of the probabilities, in nats."""
    log_density: NDArray[np.float64] | None
    """[N] the log-density of the features: small means foreign. None where the method has no density."""
    uncertainty: NDArray[np.float64]
    """[N] larger means more likely wrong or foreign; see `dsui.scores`."""
    abnormal: NDArray[np.bool_] | None
    """[N] whether the uncertainty is above the chosen threshold. None where no threshold was chosen."""

    def __len__(self) -> int:
        return len(self.label)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.label, dtype=dtype, copy=copy)

    def to_frame(self, index: Any = None) -> DataFrame:
        """A row for each image: every field but the probabilities, without those that are None. It needs pandas.

        `index` [N] names the rows, as the index of the table that the samples are from.
        """
        if find_spec("pandas") is None:
            raise DsuiError("a DataFrame needs pandas; run pip install pandas.")
        from pandas import DataFrame

        columns = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "probabilities"}
        return DataFrame({name: column for name, column in columns.items() if column is not None}, index=index)

    @classmethod
    def of(
        cls, outputs: Outputs, classes: NDArray[Any], training: Reference, threshold: Threshold | None
    ) -> Prediction:
        """From outputs; `classes` [C] are the names of the labels."""
        probabilities = outputs.probabilities.cpu().numpy()
        uncertainty = all_scores(outputs, training)["uncertainty"].cpu().numpy()
        return cls(
            label=classes[outputs.predictions.cpu().numpy()],
            probabilities=probabilities,
            max_probability=probabilities.max(1),
            entropy=entropy(outputs.logits).exp().cpu().numpy(),
            log_density=None if outputs.log_joint is None else -log_density(outputs.log_joint).cpu().numpy(),
            uncertainty=uncertainty,
            abnormal=None if threshold is None else ~(uncertainty <= threshold.value),
        )

    @classmethod
    def concatenated(cls, parts: Sequence[Prediction]) -> Prediction:
        """Several predictions of one model as one."""
        columns = {each.name: [getattr(part, each.name) for part in parts] for each in fields(cls)}
        joined: dict[str, Any] = {
            name: None if found[0] is None else np.concatenate(found) for name, found in columns.items()
        }
        return cls(**joined)
