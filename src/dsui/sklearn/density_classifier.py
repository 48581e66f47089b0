"""DS-UI on feature arrays, as an estimator of scikit-learn.

    model = DensityClassifier(reject_label="unknown", coverage=0.95).fit(X, y)
    model.predict(X_new)             # classes, and "unknown" for the most uncertain samples
    model.uncertainty(X_new)         # larger means more likely wrong or foreign

Its parameters and methods follow scikit-learn's rules, so that it works in a Pipeline, in a search over parameters and
in cross-validation. `dsui.sklearn.feature_network` has the model; images are for `dsui.classifier`.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from dsui.excerpt import excerpt
from dsui.limits import REASONS
from dsui.outputs import Outputs
from dsui.prediction import Prediction
from dsui.runs.threshold import Threshold, at_coverage, images_needed
from dsui.scores import energy, entropy, log_density, sirc
from dsui.sklearn.feature_network import FeatureNetwork, train_network

FOLDS = 5
"""In which samples are held out to choose the threshold."""


class DensityClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Samples are rows of finite numbers; it standardises them itself, and computes in float64 on the CPU.

    hidden          tanh units beside the inputs, which give the classifier its curves
    components      Gaussians for each class
    steps           updates of the training; one uses all samples, or 4,096 of a larger set
    class_weight    None, "balanced" or a weight for each class; it multiplies `sample_weight`
    reject_label    what `predict` says of a sample that is too uncertain; None rejects nothing. It is no class, and
                    is of the classes' type, as -1 for numbers
    coverage        the share of samples of the known classes that `predict` does not reject
    random_state    starts the network and the mixtures, and draws the folds; equal numbers give equal models

    With a `reject_label`, five further models are trained, each without a fifth of the samples, to see how uncertain
    held-out samples are. `score` counts a rejected sample as wrong.

    Fitted, it has `classes_`, `n_features_in_`, `feature_names_in_` where the columns have names, `n_iter_` and, with a
    `reject_label`, `threshold_`: see `dsui.runs.threshold.Threshold`.
    """

    def __init__(
        self,
        *,
        hidden: int = 64,
        components: int = 4,
        steps: int = 100,
        class_weight: Any = None,
        reject_label: Any = None,
        coverage: float = 0.95,
        random_state: Any = 0,
    ) -> None:
        self.hidden, self.components, self.steps = hidden, components, steps
        self.class_weight, self.reject_label, self.coverage = class_weight, reject_label, coverage
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Train on samples X [N, features] and labels y [N]. A weight of 2 is the sample twice, of 0 no sample."""
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)  # noqa: N806
        check_classification_targets(y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        counts = weights > 0
        X, y, weights = X[counts], y[counts], weights[counts]  # noqa: N806
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            found = ", ".join(map(excerpt, self.classes_.tolist())) or "none"
            raise ValueError(f"all samples are of one class, {found}; a classifier needs at least two classes.")
        self._check_reject_label()
        weights = weights * compute_sample_weight(self.class_weight, y)
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31))
        inputs, targets, masses = torch.from_numpy(X), torch.from_numpy(labels), torch.from_numpy(weights)
        self.network_ = self._train(inputs, targets, masses, seed)
        self.n_iter_ = self.steps
        if self.reject_label is not None:
            self.threshold_ = self._choose_threshold(inputs, targets, masses, seed)
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """[N] classes, or `reject_label` where the uncertainty is above `threshold_.value`."""
        outputs = self._outputs(X)
        label: NDArray[Any] = self.classes_[outputs.predictions.numpy()]
        if self.reject_label is None:
            return label
        return np.where(self._abnormal(outputs), np.asarray(self.reject_label), label)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """[N, C], classes in the order of `classes_`."""
        found: NDArray[np.float64] = self._outputs(X).probabilities.numpy()
        return found

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """[N, C] the logarithms of `predict_proba`, also where that is too small for a number."""
        found: NDArray[np.float64] = self._outputs(X).logits.log_softmax(1).numpy()
        return found

    def score_samples(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """[N] the log-density of the samples' features, small for foreign ones. Compare it within one model only."""
        found: NDArray[np.float64] = -_log_density(self._outputs(X)).numpy()
        return found

    def foreignness(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """[N] larger means more likely of none of the classes: the energy of the mixtures, as in `dsui.scores`."""
        found: NDArray[np.float64] = _foreignness(self._outputs(X)).numpy()
        return found

    def uncertainty(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """[N] larger means more likely wrong or foreign: ln(1 - max p) and an unusual foreignness, joined by SIRC."""
        return self._uncertainty(self._outputs(X))

    def assess(self, X: Any) -> Prediction:  # noqa: N803
        """Everything at once. `label` is never the `reject_label`; `abnormal` says which samples `predict` rejects."""
        outputs = self._outputs(X)
        probabilities, rejects = outputs.probabilities.numpy(), self.reject_label is not None
        abnormal = self._abnormal(outputs) if rejects else None
        return Prediction(
            label=self.classes_[outputs.predictions.numpy()],
            probabilities=probabilities,
            max_probability=probabilities.max(1),
            entropy=entropy(outputs.logits).exp().numpy(),
            log_density=-_log_density(outputs).numpy(),
            uncertainty=self._uncertainty(outputs),
            abnormal=abnormal,
            reason=None if abnormal is None else np.where(abnormal, REASONS["errors"], ""),
            scores={},
        )

    def _check_parameters(self) -> None:
        for name in ("hidden", "components", "steps"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {excerpt(value)}.")
        if not isinstance(self.coverage, Real) or not 0 < self.coverage < 1:
            raise ValueError(f"coverage must be a share between 0 and 1, as in 0.95, got {excerpt(self.coverage)}.")

    def _check_reject_label(self) -> None:
        if self.reject_label is None:
            return
        classes = self.classes_.tolist()
        own, given = (np.asarray(each).dtype.kind for each in (classes, self.reject_label))
        if given != own and (own, given) != ("f", "i"):
            raise ValueError(
                f"reject_label is {excerpt(self.reject_label)} and the classes are as {excerpt(classes[0])}; choose a "
                "label of the same type, as -1 for numbers or 'unknown' for text."
            )
        if self.reject_label in self.classes_:
            raise ValueError(f"reject_label {excerpt(self.reject_label)} is one of the classes; choose another label.")

    def _train(self, inputs: Tensor, targets: Tensor, weights: Tensor, seed: int) -> FeatureNetwork:
        most = int(torch.bincount(targets).max())
        components = min(int(self.components), most)
        return train_network(
            inputs, targets, weights, len(self.classes_), int(self.hidden), components, int(self.steps), seed
        )

    def _choose_threshold(self, inputs: Tensor, targets: Tensor, weights: Tensor, seed: int) -> Threshold:
        """By the uncertainties of samples that a model was not trained on."""
        if len(targets) < (needed := images_needed(float(self.coverage))):
            raise ValueError(
                f"a coverage of {self.coverage} takes at least {needed} samples and there are {len(targets)}; choose a "
                "lower coverage, give more samples, or leave out reject_label."
            )
        counts = torch.bincount(targets)
        fewest = int(counts.argmin())
        if counts[fewest] < 2:
            raise ValueError(
                f"class {excerpt(self.classes_.tolist()[fewest])} has one sample; to choose a threshold, a "
                "reject_label takes at least two of every class."
            )
        folds = StratifiedKFold(min(FOLDS, int(counts[fewest])), shuffle=True, random_state=seed)
        uncertainties, errors = torch.empty(len(targets), dtype=torch.float64), torch.empty(len(targets)).bool()
        for others, held_out in folds.split(inputs.numpy(), targets.numpy()):
            network = self._train(inputs[others], targets[others], weights[others], seed)
            outputs = network.outputs(inputs[held_out])
            uncertainties[held_out] = _uncertainty(network, outputs)
            errors[held_out] = outputs.predictions != targets[held_out]
        return at_coverage(uncertainties, errors, float(self.coverage))

    def _outputs(self, X: Any) -> Outputs:  # noqa: N803
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)  # noqa: N806
        return self.network_.outputs(torch.tensor(X))  # a copy, as those of pandas are read-only

    def _uncertainty(self, outputs: Outputs) -> NDArray[np.float64]:
        found: NDArray[np.float64] = _uncertainty(self.network_, outputs).numpy()
        return found

    def _abnormal(self, outputs: Outputs) -> NDArray[np.bool_]:
        return ~(self._uncertainty(outputs) <= self.threshold_.value)


def _log_density(outputs: Outputs) -> Tensor:
    assert outputs.log_joint is not None
    return log_density(outputs.log_joint)


def _foreignness(outputs: Outputs) -> Tensor:
    assert outputs.class_scores is not None
    return energy(outputs.class_scores)


def _uncertainty(network: FeatureNetwork, outputs: Outputs) -> Tensor:
    return sirc(outputs.logits, _foreignness(outputs), *network.foreign)
