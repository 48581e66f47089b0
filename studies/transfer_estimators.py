"""The estimators of the transfer study: the strongest linear rival, and DS-UI's own estimator.

The rival is scikit-learn's logistic regression on standardised features. Its inverse penalty C is chosen among
`PENALTIES` by the log loss in five folds of the training features, so it is tuned on every draw by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from dsui.data.dataset import ImageSet
from dsui.data.features import feature_set, foreign_features
from dsui.evaluation.metrics import ranking_metrics, selective_metrics
from dsui.evaluation.reliability import calibration_metrics
from dsui.evaluation.results import ResultRow, commit, versions
from dsui.outputs import Outputs
from dsui.scores import all_scores, reference
from dsui.sklearn import DensityClassifier
from studies.transfer_runs import KEPT, Task, run_name

PENALTIES = tuple(float(power) for power in np.logspace(-5, 1, 13))
FOLDS = 5
Predict = Callable[[Tensor], Outputs]
"""Features [N, M] to outputs."""


def fit_logistic(features: Tensor, labels: Tensor) -> Predict:
    model = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)),
        {"logisticregression__C": PENALTIES},
        scoring="neg_log_loss",
        cv=FOLDS,
    ).fit(features.numpy(), labels.numpy())
    return lambda x: Outputs(x, torch.from_numpy(model.decision_function(x.numpy())))


def fit_density(features: Tensor, labels: Tensor) -> Predict:
    model = DensityClassifier().fit(features.numpy(), labels.numpy())
    return lambda x: model.network_.outputs(x.double())


ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Predict]] = {
    "logistic regression": fit_logistic,
    "DensityClassifier": fit_density,
}


def run_estimator(task: Task, name: str) -> Iterator[ResultRow]:
    """The rows that `studies.transfer_runs.run` gives for a method of `dsui train`."""
    train, test = feature_set(task.known, "train"), feature_set(task.known, "test")
    predict = ESTIMATORS[name](_features(train), train.labels)
    training = reference([predict(_features(train))])
    inside = predict(_features(test))
    own, wrong = all_scores(inside, training), inside.predictions != test.labels
    calibration = calibration_metrics(inside.logits, test.labels)
    yield _row(task, name, "accuracy", None, "prediction", calibration, None)
    for score in (score for score in KEPT if score in own):
        metrics = ranking_metrics(own[score], wrong) | selective_metrics(own[score], wrong)
        yield _row(task, name, "misclassification", None, score, metrics, wrong)
    for foreign, path in task.foreign.items():
        others = all_scores(predict(_features(foreign_features(path))), training)
        for score in (score for score in KEPT if score in own):
            values = torch.cat([own[score], others[score]])
            positive = torch.arange(len(values)) >= len(own[score])
            yield _row(task, name, "ood", foreign, score, ranking_metrics(values, positive), positive)


def _features(images: ImageSet) -> Tensor:
    return images.read(torch.arange(len(images.labels))).flatten(1)


def _row(
    task: Task,
    method: str,
    kind: str,
    foreign: str | None,
    score: str,
    metrics: dict[str, float],
    positive: Tensor | None,
) -> ResultRow:
    return ResultRow(
        run=run_name(task, method),
        method=method,
        objective=None,
        data=task.name,
        backbone="features",
        recipe="estimator",
        seed=task.number,
        task=kind,
        foreign=foreign,
        score=score,
        metrics=metrics,
        n_positive=None if positive is None else int(positive.sum()),
        n_negative=None if positive is None else int((~positive).sum()),
        protocol=f"{kind}, all in-domain images of test",
        split=None,
        versions=versions(),
        device="cpu",
        seconds=None,
        commit=commit(),
    )
