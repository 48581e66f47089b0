"""What a model predicts for images: the class, the uncertainty, and whether to trust it. It needs numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsui.errors import DsuiError

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
    """[N] whether a chosen threshold rejects the image. None where none was chosen."""
    reason: NDArray[Any] | None
    """[N] why: "uncertain", "foreign" or "uncertain and foreign"; "" for accepted images."""
    scores: dict[str, NDArray[np.float64]]
    """[N] each: the scores that the chosen thresholds are of."""
    foreignness: NDArray[np.float64] | None = None
    """[N] larger means more foreign, whatever the class. None where the model has no such score."""

    def __len__(self) -> int:
        return len(self.label)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.label, dtype=dtype, copy=copy)

    def to_frame(self, index: Any = None) -> DataFrame:
        """A row for each image: every field but the probabilities, without those that are None, and a column for each
        of the `scores`. It needs pandas.

        `index` [N] names the rows, as the index of the table that the samples are from.
        """
        if find_spec("pandas") is None:
            raise DsuiError("a DataFrame needs pandas; run pip install pandas.")
        from pandas import DataFrame

        names = [each.name for each in fields(self) if each.name not in {"probabilities", "scores"}]
        columns = {**self.scores, **{name: getattr(self, name) for name in names}}
        return DataFrame({name: column for name, column in columns.items() if column is not None}, index=index)

    @classmethod
    def concatenated(cls, parts: Sequence[Prediction]) -> Prediction:
        """Several predictions of one model as one."""
        columns = {each.name: _joined([getattr(part, each.name) for part in parts]) for each in fields(cls)}
        return cls(**columns)


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return None if parts[0] is None else np.concatenate(parts)
