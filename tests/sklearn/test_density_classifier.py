"""The estimator for feature arrays: scikit-learn's own checks, and what its docstring promises."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from dsui import UncertaintyClassifier
from dsui.sklearn import DensityClassifier

X, Y = load_wine(return_X_y=True)
TRAIN, TEST, LABELS, TRUTH = train_test_split(X, Y, test_size=0.4, random_state=0, stratify=Y)
NAMES = np.array(["barbera", "grignolino", "nebbiolo"])


@pytest.fixture(scope="module")
def fitted() -> DensityClassifier:
    return DensityClassifier().fit(TRAIN, LABELS)


@parametrize_with_checks([DensityClassifier()])  # type: ignore[untyped-decorator]
def test_it_passes_every_check_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_the_image_classifier_does_not_claim_to_take_tables() -> None:
    tags = UncertaintyClassifier().__sklearn_tags__()
    assert (tags.input_tags.two_d_array, tags.input_tags.three_d_array) == (False, True)
    assert tags.estimator_type == "classifier"


def test_the_image_classifier_passes_the_checks_that_need_no_table() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)  # images are no tables, so most checks are left out
        check_estimator(UncertaintyClassifier("small"))


@pytest.mark.parametrize(
    ("load", "bar"),
    [(load_iris, 0.90), (load_wine, 0.93), (load_breast_cancer, 0.94), (load_digits, 0.95)],
    ids=["iris", "wine", "breast_cancer", "digits"],
)
def test_it_does_well_as_it_comes(load: Any, bar: float) -> None:
    x, y = load(return_X_y=True)
    train, new, labels, truth = train_test_split(x, y, test_size=0.3, random_state=0, stratify=y)
    # docs/estimator.md has the means, 93.9 to 97.7 %; the bars lie about a deviation of one split below
    assert DensityClassifier().fit(train, labels).score(new, truth) > bar


def test_a_class_that_training_lacks_is_foreign_and_uncertain() -> None:
    known = LABELS != 0
    model = DensityClassifier().fit(TRAIN[known], LABELS[known])
    foreign = TRUTH == 0
    assert roc_auc_score(foreign, model.foreignness(TEST)) > 0.9
    assert roc_auc_score(foreign, -model.score_samples(TEST)) > 0.9
    assert roc_auc_score(foreign, model.uncertainty(TEST)) > 0.85


def test_probabilities_are_the_softmax_of_features_no_longer_than_usual(fitted: DensityClassifier) -> None:
    network = fitted.network_
    z = (TEST - TRAIN.mean(0)) / TRAIN.std(0)
    hidden = np.tanh(z @ network.hidden.weight.detach().numpy().T + network.hidden.bias.detach().numpy())
    h = np.concatenate([z, hidden], 1)
    length = np.linalg.norm(h, axis=1, keepdims=True)
    logits = h * np.minimum(1, network.radius.item() / length) @ network.weight.numpy().T
    expected = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    assert fitted.predict_proba(TEST) == pytest.approx(expected, rel=1e-9)  # float64, in another order
    assert fitted.predict_log_proba(TEST) == pytest.approx(np.log(expected), rel=1e-9, abs=1e-9)
    assert np.array_equal(fitted.predict(TEST), fitted.classes_[expected.argmax(1)])


def test_score_samples_is_the_log_density_of_the_mixtures(fitted: DensityClassifier) -> None:
    network = fitted.network_
    h = network(torch.from_numpy(TEST)).detach().numpy()
    head = network.head
    means, deviations = head.means.detach().numpy(), head.variances.detach().numpy() ** 0.5
    parts = stats.norm.logpdf(h[:, None, None], means, deviations).sum(-1) + head.mixing_weights.log().detach().numpy()
    joint = logsumexp(parts, axis=2) + np.log(np.bincount(LABELS) / len(LABELS))
    assert fitted.score_samples(TEST) == pytest.approx(logsumexp(joint, axis=1), rel=1e-6)  # the prior is float64


def test_far_away_is_no_reason_for_confidence(fitted: DensityClassifier) -> None:
    away = TRAIN.mean(0) + np.outer([10, 1e3, 1e6], TEST[0] - TRAIN.mean(0))
    near, far, farther = fitted.predict_proba(away).max(1)
    assert farther == pytest.approx(far, abs=0.02)  # the direction of the features has settled
    assert near < 1
    assert np.all(np.diff(fitted.foreignness(away)) > 0)
    assert np.all(np.diff(fitted.uncertainty(away)) > 0)


def test_equal_states_give_equal_models_and_others_other_ones() -> None:
    before = torch.get_rng_state()
    one, same, other = (DensityClassifier(random_state=seed).fit(TRAIN, LABELS) for seed in (3, 3, 4))
    assert np.array_equal(one.uncertainty(TEST), same.uncertainty(TEST))
    assert not np.array_equal(one.uncertainty(TEST), other.uncertainty(TEST))
    assert torch.equal(torch.get_rng_state(), before)
    drawn = DensityClassifier(random_state=np.random.RandomState(3)).fit(TRAIN, LABELS)
    assert np.array_equal(one.uncertainty(TEST), drawn.uncertainty(TEST))


def test_it_is_cloned_pickled_searched_calibrated_and_part_of_a_pipeline(fitted: DensityClassifier) -> None:
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301
    assert np.array_equal(again.uncertainty(TEST), fitted.uncertainty(TEST))
    copy = clone(DensityClassifier(hidden=8, reject_label=-1))
    assert copy.get_params() == DensityClassifier(hidden=8, reject_label=-1).get_params()
    quick = DensityClassifier(steps=30)
    pipeline = make_pipeline(StandardScaler(), quick)
    search = GridSearchCV(pipeline, {"densityclassifier__hidden": [4, 16]}, cv=2).fit(TRAIN, LABELS)
    assert search.score(TEST, TRUTH) > 0.9
    assert search.best_estimator_[-1].hidden in (4, 16)
    assert cross_val_score(quick, TRAIN, LABELS, cv=2, scoring="neg_log_loss").max() > -0.3
    calibrated = CalibratedClassifierCV(quick, cv=2).fit(TRAIN, LABELS)
    assert calibrated.score(TEST, TRUTH) > 0.9


@pytest.mark.parametrize(("names", "label"), [(np.arange(3) * 2.0, -1), (NAMES, "unknown")], ids=["numbers", "text"])
def test_the_most_uncertain_samples_get_the_reject_label(names: Any, label: Any) -> None:
    model = DensityClassifier(reject_label=label, coverage=0.8).fit(TRAIN, names[LABELS])
    said = model.predict(TEST)
    rejected = said == label
    assert rejected.mean() == pytest.approx(0.2, abs=0.15)  # two deviations of a share of 106 and one of 72 samples
    assert model.uncertainty(TEST)[rejected].min() > model.threshold_.value >= model.uncertainty(TEST)[~rejected].max()
    assert label not in model.classes_
    plain = DensityClassifier().fit(TRAIN, names[LABELS])
    assert np.array_equal(plain.predict(TEST)[~rejected], said[~rejected])
    assert said.dtype.kind == plain.predict(TEST).dtype.kind
    assert not hasattr(plain, "threshold_")
    assert model.score(TEST, names[TRUTH]) == np.mean(said == names[TRUTH])


def test_foreign_samples_are_rejected_more_often_than_known_ones() -> None:
    known = LABELS != 0
    model = DensityClassifier(reject_label=-1, coverage=0.9).fit(TRAIN[known], LABELS[known])
    rejected = model.predict(TEST) == -1
    assert rejected[TRUTH == 0].mean() > rejected[TRUTH != 0].mean() + 0.3


def test_a_weight_is_a_number_of_copies_and_no_weight_no_sample() -> None:
    weights = np.arange(len(TRAIN)) % 3
    of_weights = DensityClassifier(components=1).fit(TRAIN, LABELS, sample_weight=weights)
    of_copies = DensityClassifier(components=1).fit(TRAIN.repeat(weights, 0), LABELS.repeat(weights))
    # float64 sums in another order; with one Gaussian for each class no draw of EM differs
    assert of_weights.predict_proba(TEST) == pytest.approx(of_copies.predict_proba(TEST), abs=1e-6)
    assert of_weights.score_samples(TEST) == pytest.approx(of_copies.score_samples(TEST), abs=1e-4)
    assert of_weights.uncertainty(TEST) == pytest.approx(of_copies.uncertainty(TEST), abs=1e-4)


def test_balanced_classes_weigh_as_if_they_were_equally_frequent() -> None:
    counts = np.bincount(LABELS)
    balanced = DensityClassifier(class_weight="balanced").fit(TRAIN, LABELS)
    weighted = DensityClassifier().fit(TRAIN, LABELS, sample_weight=(len(LABELS) / (3 * counts))[LABELS])
    assert np.array_equal(balanced.predict_proba(TEST), weighted.predict_proba(TEST))
    assert balanced.network_.head.class_prior.tolist() == pytest.approx([1 / 3] * 3)


def test_tables_keep_their_names_and_predictions_become_tables() -> None:
    columns = load_wine().feature_names
    table = pd.DataFrame(TRAIN, columns=columns)
    model = DensityClassifier(reject_label="?").fit(table, NAMES[LABELS])
    assert model.feature_names_in_.tolist() == columns
    new = pd.DataFrame(TEST, columns=columns, index=np.arange(len(TEST)) + 500)
    found = model.assess(new).to_frame(new.index)
    expected = ["label", "max_probability", "entropy", "log_density", "uncertainty", "abnormal", "reason"]
    assert found.columns.tolist() == expected
    assert found.index.tolist() == new.index.tolist()
    assert np.array_equal(found["abnormal"], model.predict(new) == "?")
    assert np.array_equal(found["abnormal"], found["reason"] == "uncertain")
    assert np.array_equal(found["log_density"], model.score_samples(new))
    plain = DensityClassifier().fit(table, LABELS).assess(new).to_frame()
    assert "abnormal" not in plain
    with pytest.raises(ValueError, match="feature names"):
        model.predict(new[columns[::-1]])


def test_float32_is_computed_in_float64() -> None:
    single = TRAIN.astype(np.float32)
    one, other = (DensityClassifier().fit(x, LABELS) for x in (single, single.astype(np.float64)))
    assert np.array_equal(one.predict_proba(TEST), other.predict_proba(TEST))
    assert one.predict_proba(TEST.astype(np.float32)).dtype == np.float64


def test_a_large_set_is_trained_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsui.sklearn.feature_network.BATCH", 40)
    model = DensityClassifier().fit(TRAIN, LABELS)
    assert model.score(TEST, TRUTH) > 0.9
    assert len(model.score_samples(TEST)) == len(TEST)


def test_constant_inputs_and_classes_of_one_sample_do_no_harm() -> None:
    wide = np.column_stack([TRAIN, np.full(len(TRAIN), 0.1), np.zeros(len(TRAIN))])
    rare = LABELS.copy()
    rare[0] = 7
    model = DensityClassifier().fit(wide, rare)
    new = np.column_stack([TEST, np.full(len(TEST), 0.1), np.zeros(len(TEST))])
    assert model.score(new, TRUTH) > 0.9
    assert np.isfinite(model.score_samples(new)).all()


@pytest.mark.parametrize(
    ("chosen", "labels", "sentence"),
    [
        ({"hidden": 0}, LABELS, "hidden must be a whole number of at least 1, got 0"),
        ({"components": 2.5}, LABELS, "components must be a whole number"),
        ({"steps": -1}, LABELS, "steps must be a whole number"),
        ({"coverage": 95}, LABELS, "coverage must be a share between 0 and 1, as in 0.95, got 95"),
        ({"reject_label": "?"}, LABELS, "reject_label is '\\?' and the classes are as 0; choose a label of the same"),
        ({"reject_label": 2}, LABELS, "reject_label 2 is one of the classes"),
        ({}, np.full(len(LABELS), 4), "all samples are of one class, 4; a classifier needs at least two classes"),
        ({"reject_label": -1}, np.where(np.arange(len(LABELS)) == 5, 9, LABELS), "class 9 has one sample; to choose"),
        (
            {"reject_label": -1, "coverage": 0.995},
            LABELS,
            "takes at least 199 samples and there are 106; choose a lower",
        ),
    ],
)
def test_each_mistake_of_a_caller_is_one_sentence(chosen: dict[str, Any], labels: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as mistake:
        DensityClassifier(**chosen).fit(TRAIN, labels)
    assert str(mistake.value).endswith(".")
    assert "\n" not in str(mistake.value)


def test_before_fit_everything_but_fit_is_refused() -> None:
    for name in (
        "predict",
        "predict_proba",
        "predict_log_proba",
        "score_samples",
        "foreignness",
        "uncertainty",
        "assess",
    ):
        with pytest.raises(NotFittedError):
            getattr(DensityClassifier(), name)(TEST)
