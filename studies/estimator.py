"""`DensityClassifier` beside estimators of scikit-learn, on the sets that come with scikit-learn.

Each set is split 20 times, 30 % for test, stratified by class; all estimators see the same splits and standardised
inputs. Columns:

    accuracy          on test
    errors AUROC      of wrong predictions among test samples, by 1 - max p, or by `uncertainty` of DensityClassifier;
                      splits without an error have none
    foreign AUROC     training leaves one class out, each class in turn on 5 of the splits; its test samples among the
                      others', by the log-density, by 1 - max p for logistic regression, which has no density, and by
                      `foreignness` of DensityClassifier; sets of two classes have none
    seconds           of the processor for `fit`, with one thread, the median

A rival is marked where it differs from DensityClassifier on the splits that both have a figure of. Splits share
samples, so their differences d are no independent draws; the test is the corrected resampled one (Nadeau and Bengio,
2003)

    t = mean(d) / sqrt((1 / n + n_test / n_train) var(d)),    n - 1 degrees of freedom; all p-values Holm-corrected

    python -m studies.estimator results/estimator.jsonl

writes one JSON line for each set, estimator and split; `studies.documents` puts the table into docs/estimator.md.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from scipy.stats import t as student
from sklearn import datasets
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from dsui.evaluation.statistics import holm, mark
from dsui.sklearn import DensityClassifier

SPLITS, FOREIGN_SPLITS, TEST = 20, 5, 0.3
SETS = ("iris", "wine", "breast_cancer", "digits")
SHRINKAGE = 0.1
"""Of covariances in QDA: those of digits are singular without it."""
COMPONENTS, SMALLEST_VARIANCE = 4, 1e-2
Array = NDArray[np.float64]


class Rival:
    """An estimator, by which score it ranks foreign samples, and how likely wrong it says a prediction is."""

    def __init__(self, seed: int) -> None:
        del seed
        self.model: Any

    def fit(self, x: Array, y: NDArray[Any]) -> None:
        self.model.fit(x, y)

    def probabilities(self, x: Array) -> Array:
        found: Array = self.model.predict_proba(x)
        return found

    def uncertainty(self, x: Array) -> Array:
        found: Array = 1 - self.probabilities(x).max(1)
        return found

    def foreignness(self, x: Array) -> Array:
        return self.uncertainty(x)


class Logistic(Rival):
    def __init__(self, seed: int) -> None:
        del seed
        self.model = LogisticRegression(max_iter=5000)


class Linear(Rival):
    def __init__(self, seed: int) -> None:
        del seed
        self.model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", store_covariance=True)

    def foreignness(self, x: Array) -> Array:
        covariances = [self.model.covariance_] * len(self.model.means_)
        return _foreign_to(x, self.model.priors_, self.model.means_, covariances)


class Quadratic(Rival):
    def __init__(self, seed: int) -> None:
        del seed
        self.model = QuadraticDiscriminantAnalysis(reg_param=SHRINKAGE)

    def foreignness(self, x: Array) -> Array:
        model = self.model
        covariances = [(r * s) @ r.T for r, s in zip(model.rotations_, model.scalings_, strict=True)]
        return _foreign_to(x, model.priors_, model.means_, covariances)


class Mixtures(Rival):
    """A `GaussianMixture` for each class, and Bayes' rule."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, x: Array, y: NDArray[Any]) -> None:
        classes, counts = np.unique(y, return_counts=True)
        self.priors = counts / counts.sum()
        self.mixtures = [
            GaussianMixture(
                min(COMPONENTS, count),
                covariance_type="diag",
                reg_covar=SMALLEST_VARIANCE,
                random_state=self.seed,
                max_iter=500,
            ).fit(x[y == label])
            for label, count in zip(classes, counts, strict=True)
        ]

    def joint(self, x: Array) -> Array:
        found: Array = np.stack([each.score_samples(x) for each in self.mixtures], 1) + np.log(self.priors)
        return found

    def probabilities(self, x: Array) -> Array:
        joint = self.joint(x)
        found: Array = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        return found

    def foreignness(self, x: Array) -> Array:
        found: Array = -logsumexp(self.joint(x), axis=1)
        return found


class Density(Rival):
    def __init__(self, seed: int) -> None:
        self.model = DensityClassifier(random_state=seed)

    def uncertainty(self, x: Array) -> Array:
        found: Array = self.model.uncertainty(x)
        return found

    def foreignness(self, x: Array) -> Array:
        found: Array = self.model.foreignness(x)
        return found


OURS = "DensityClassifier"
TESTS = 44
"""Of four rivals on four sets in three columns, but for the foreign classes of a set of two classes."""
ESTIMATORS: dict[str, Callable[[int], Rival]] = {
    OURS: Density,
    "LogisticRegression": Logistic,
    "LDA": Linear,
    "QDA": Quadratic,
    "GaussianMixture per class": Mixtures,
}
PERCENT = ("accuracy", "errors AUROC", "foreign AUROC")
FEWEST_PAIRS = 3
Rows = list[dict[str, Any]]


def _foreign_to(x: Array, priors: Array, means: Array, covariances: list[Array]) -> Array:
    """Minus the log-density of a mixture of one Gaussian for each class."""
    parts = [
        np.log(prior) + multivariate_normal.logpdf(x, mean, covariance, allow_singular=True)
        for prior, mean, covariance in zip(priors, means, covariances, strict=True)
    ]
    found: Array = -logsumexp(parts, axis=0)
    return found


def load(name: str) -> tuple[Array, NDArray[Any]]:
    return getattr(datasets, f"load_{name}")(return_X_y=True)  # type: ignore[no-any-return]


def run(name: str, estimator: str, split: int) -> dict[str, object]:
    """The figures of one estimator on one split; `foreign AUROC` is the mean over the classes left out."""
    x, y = load(name)
    train, test, labels, truth = train_test_split(x, y, test_size=TEST, random_state=split, stratify=y)
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    rival = ESTIMATORS[estimator](split)
    began = time.process_time()
    rival.fit(train, labels)
    seconds = time.process_time() - began
    wrong = np.unique(labels)[rival.probabilities(test).argmax(1)] != truth
    row: dict[str, object] = {"data": name, "estimator": estimator, "seed": split, "accuracy": 1 - wrong.mean()}
    if wrong.any():
        row["errors AUROC"] = roc_auc_score(wrong, rival.uncertainty(test))
    classes = np.unique(y)
    if len(classes) > 2 and split < FOREIGN_SPLITS:
        found = []
        for foreign in classes:
            rival = ESTIMATORS[estimator](split)
            rival.fit(train[labels != foreign], labels[labels != foreign])
            found.append(roc_auc_score(truth == foreign, rival.foreignness(test)))
        row["foreign AUROC"] = statistics.mean(found)
    return {**row, "seconds": round(seconds, 4)}


def rows() -> Iterator[dict[str, object]]:
    torch.set_num_threads(1)
    for name in SETS:
        for split in range(SPLITS):
            for estimator in ESTIMATORS:
                yield run(name, estimator, split)


def table(path: Path) -> str:
    """Markdown: a line for each set and estimator, the best figure of a set in bold, and marks of what differs."""
    every = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [
        "| data | estimator | accuracy % ↑ | errors AUROC % ↑ | foreign AUROC % ↑ | fit, seconds |",
        "|---|---|---:|---:|---:|---:|",
    ]
    chosen = {
        (name, each): [row for row in every if (row["data"], row["estimator"]) == (name, each)]
        for name in SETS
        for each in ESTIMATORS
    }
    marks = _marks(chosen)
    for name in SETS:
        figures = {each: _figures(chosen[name, each]) for each in ESTIMATORS}
        best = {
            column: max((means[column][0] for means in figures.values() if column in means), default=0.0)
            for column in PERCENT
        }
        for estimator, means in figures.items():
            cells = [
                _cell(means.get(column), best[column]) + marks.get((name, estimator, column), "") for column in PERCENT
            ]
            lines.append(f"| {name} | {estimator} | {' | '.join(cells)} | {means['seconds'][0]:.3f} |")
    return "\n".join(lines)


def _marks(chosen: dict[tuple[str, str], Rows]) -> dict[tuple[str, str, str], str]:
    """Of a rival's column on a set, as the last characters of its cell."""
    places = [(name, each, column) for name, each in chosen if each != OURS for column in PERCENT]
    p_values = [
        p_value(
            [
                ours[column] - theirs[column]
                for ours, theirs in zip(chosen[name, OURS], chosen[name, each], strict=True)
                if column in ours and column in theirs
            ]
        )
        for name, each, column in places
    ]
    return {place: f" {mark(p)}" for place, p in zip(places, holm(p_values), strict=True) if not math.isnan(p)}


def p_value(differences: list[float]) -> float:
    """Of the corrected resampled t-test; nan where there is nothing to test."""
    if len(differences) < FEWEST_PAIRS:
        return math.nan
    variance = (1 / len(differences) + TEST / (1 - TEST)) * statistics.variance(differences)
    if variance == 0:
        return 1.0
    return float(2 * student.sf(abs(statistics.mean(differences)) / math.sqrt(variance), len(differences) - 1))


def _figures(chosen: list[dict[str, Any]]) -> dict[str, tuple[float, float, int]]:
    """Mean, deviation and number of splits of every column; of the seconds the median."""
    found = {}
    for column in PERCENT:
        if values := [100 * row[column] for row in chosen if column in row]:
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            found[column] = statistics.mean(values), deviation, len(values)
    found["seconds"] = statistics.median(row["seconds"] for row in chosen), 0.0, len(chosen)
    return found


def _cell(figure: tuple[float, float, int] | None, best: float) -> str:
    if figure is None:
        return "-"
    mean, deviation, _ = figure
    text = f"{mean:.1f} ± {deviation:.1f}"
    return f"**{text}**" if f"{mean:.1f}" == f"{best:.1f}" else text


if __name__ == "__main__":
    with Path(sys.argv[1]).open("w", encoding="utf-8") as stream:
        for each in rows():
            stream.write(json.dumps(each) + "\n")
            stream.flush()
