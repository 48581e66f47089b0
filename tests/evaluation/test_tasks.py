"""The five tasks, of runs of two epochs on the embedded digits."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import accuracy_score, average_precision_score, log_loss, roc_auc_score

from dsui.data.registry import load
from dsui.detectors import registry as detectors
from dsui.detectors.energy import Energy
from dsui.detectors.knn import KNN
from dsui.detectors.odin import Odin
from dsui.detectors.relative_mahalanobis import RelativeMahalanobis
from dsui.errors import DsuiError
from dsui.evaluation import TASKS, cache, fitting
from dsui.evaluation.cache import ImageSource
from dsui.evaluation.results import ResultRow
from dsui.evaluation.sources import ImageSources, Part
from dsui.evaluation.tasks import Evaluation
from dsui.outputs import Outputs
from dsui.report.comparison import available, compare
from tests.support.digit_runs import calibrated, evaluation, run

KNOWN = "0,1,2,3,4,5"
PLAIN = {"max_probability", "entropy", "max_logit", "energy", "sirc_energy", "uncertainty", "foreignness"}
DENSITY = PLAIN | {
    *("density_max_probability", "density_entropy", "floored_posterior"),
    *("log_density", "sirc_log_density", "norm", "sirc_norm"),
    *("density_energy", "sirc_density_energy", "sphere_energy", "sirc_sphere_energy", "sphere_max_probability"),
}


def rows_of(
    task: str, of: Evaluation, foreign: tuple[str, ...] = (), epsilons: tuple[float, ...] = ()
) -> list[ResultRow]:
    return list(of.rows(task, foreign, epsilons))


def by_score(rows: list[ResultRow]) -> dict[str, ResultRow]:
    found = {str(row.score): row for row in rows if row.task != "accuracy"}
    assert len(found) == len([row for row in rows if row.task != "accuracy"])
    return found


def check_against_sklearn(row: ResultRow, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """All ranking metrics of foreign samples (theirs) among in-domain ones, by other means than dsui's."""
    scores = torch.cat([ours, theirs]).numpy()
    positive = np.arange(len(scores)) >= len(ours)
    assert row.metrics["auroc"] == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)  # float64 sums
    assert row.metrics["aupr"] == pytest.approx(average_precision_score(positive, scores), abs=1e-12)
    assert row.metrics["aupr_in"] == pytest.approx(average_precision_score(~positive, -scores), abs=1e-12)
    kept = np.sort(ours.numpy())[int(np.ceil(0.95 * len(ours))) - 1]
    assert row.metrics["fpr95"] == np.mean(theirs.numpy() <= kept)
    assert row.metrics["ties"] == len(scores) - np.sum(np.unique(scores, return_counts=True)[1] == 1)
    assert (row.n_positive, row.n_negative) == (len(theirs), len(ours))


@pytest.mark.parametrize(("method", "names"), [("msp", PLAIN), ("dsui", DENSITY)])
def test_misclassification_ranks_errors_among_all_test_images(method: str, names: set[str]) -> None:
    evaluated = evaluation(run(method))
    rows = rows_of("misclassification", evaluated)
    stored, scores = evaluated.scores(evaluated.sources.own())
    whole = stored.whole()
    assert whole.labels is not None
    wrong = whole.predictions != whole.labels
    assert set(scores) == names
    assert by_score(rows).keys() == names
    for name, row in by_score(rows).items():
        check_against_sklearn(row, scores[name][~wrong], scores[name][wrong])
        assert row.foreign is None
        order = scores[name].argsort()
        risks = wrong[order].double().cumsum(0) / torch.arange(1, 798)
        assert row.metrics["aurc"] == pytest.approx(risks.mean().item(), abs=1e-12)  # float64 sums
    streams = {row.score: row for row in rows if row.task == "accuracy"}
    logits = {"prediction": whole.logits} | ({"density": whole.class_scores} if whole.class_scores is not None else {})
    assert streams.keys() == logits.keys()
    for stream, values in logits.items():
        metrics = streams[stream].metrics
        assert metrics["accuracy"] == accuracy_score(whole.labels, values.argmax(1))
        expected = log_loss(whole.labels, values.double().softmax(1), labels=range(10))
        assert metrics["nll"] == pytest.approx(expected, rel=1e-9)  # log_loss goes through p, which loses digits


def test_ood_ranks_another_sets_images_among_all_test_images() -> None:
    evaluated = evaluation(run("dsui"))
    rows = by_score(rows_of("ood", evaluated, ("photos",)))
    ours, theirs = (
        evaluated.scores(source)[1] for source in (evaluated.sources.own(), evaluated.sources.foreign("photos"))
    )
    assert rows.keys() == DENSITY
    for name, row in rows.items():
        check_against_sklearn(row, ours[name], theirs[name])
        assert (row.foreign, row.n_positive, row.n_negative) == ("photos", 1500, 797)
    assert rows["max_probability"].metrics["auroc"] > 0.9  # 0.991 when written: photographs are no digits


def test_noise_is_ten_thousand_images() -> None:
    evaluated = evaluation(run())
    rows = by_score(rows_of("noise", evaluated))
    ours, theirs = (evaluated.scores(source)[1] for source in (evaluated.sources.own(), evaluated.sources.noise()))
    for name, row in rows.items():
        check_against_sklearn(row, ours[name], theirs[name])
        assert (row.foreign, row.n_positive, row.n_negative) == ("noise", 10_000, 797)


def test_open_set_ranks_unknown_classes_among_known_ones() -> None:
    evaluated = evaluation(run("dsui", known=KNOWN))
    rows = by_score(rows_of("open-set", evaluated))
    ours, theirs = (evaluated.scores(source)[1] for source in (evaluated.sources.own(), evaluated.sources.unknown()))
    for name, row in rows.items():
        check_against_sklearn(row, ours[name], theirs[name])
        assert row.foreign == "unknown"
        assert row.n_positive is not None
        assert row.n_negative is not None
        assert row.n_positive + row.n_negative == 797
        assert str(row.split).startswith(f"{KNOWN}:")
    assert rows["max_probability"].metrics["auroc"] > 0.7  # 0.911 when written
    assert by_score(rows_of("misclassification", evaluated))["entropy"].n_negative is not None
    with pytest.raises(DsuiError, match="train with --known"):
        rows_of("open-set", evaluation(run()))


@pytest.mark.parametrize("method", ["msp", "dsui"])
def test_an_attack_of_no_strength_cannot_be_told_apart_and_a_strong_one_can(method: str) -> None:
    evaluated = evaluation(run(method))
    rows = [row for row in rows_of("fgsm", evaluated, epsilons=(0.0, 0.2)) if row.score != "prediction"]
    none, strong = by_score(rows[: len(rows) // 2]), by_score(rows[len(rows) // 2 :])
    for name, row in none.items():
        assert row.metrics["auroc"] == 0.5, name
        assert row.metrics["ties"] == 2 * 797
        assert (row.foreign, row.n_positive, row.n_negative) == (0.0, 797, 797)
    _, ours = evaluated.scores(evaluated.sources.own())
    _, theirs = evaluated.scores(evaluated.sources.attacked(0.2))
    for name, row in strong.items():
        check_against_sklearn(row, ours[name], theirs[name])
        assert row.foreign == 0.2
    assert strong["max_probability"].metrics["auroc"] > 0.6  # 0.878 and 0.885 when written


def test_an_attack_makes_the_model_err() -> None:
    evaluated = evaluation(run())
    hits = []
    for source in (evaluated.sources.own(), evaluated.sources.attacked(0.2)):
        whole = evaluated.scores(source)[0].whole()
        assert whole.labels is not None
        hits.append(accuracy_score(whole.labels, whole.predictions))
    assert hits[0] - hits[1] > 0.5  # 0.930 to 0.109 when written
    rows = [row for row in rows_of("fgsm", evaluated, epsilons=(0.0, 0.2)) if row.score == "prediction"]
    assert [(row.foreign, row.metrics["accuracy"]) for row in rows] == [(0.0, hits[0]), (0.2, hits[1])]
    assert {(row.n_positive, row.n_negative) for row in rows} == {(None, None)}  # nothing is ranked


def test_runs_of_fewer_training_images_are_no_seeds_of_runs_of_all() -> None:
    on_test, on_held_out = (rows_of("misclassification", evaluation(calibrated(), part)) for part in get_args(Part))
    assert {row.recipe for row in on_test} == {"demo, epochs=2, calibration=0.2"}
    assert {row.recipe for row in on_held_out} == {"demo, epochs=2"}  # of fewer images all of them
    others = rows_of("misclassification", evaluation(run("dsui")))
    assert len(compare([*on_test, *others], available(others)).lines) == 2


def test_rows_say_where_they_come_from() -> None:
    evaluated = evaluation(run("dsui"))
    rows = [*rows_of("misclassification", evaluated), *rows_of("fgsm", evaluated, epsilons=(0.2,))]
    for row in rows:
        assert (row.run, row.method, row.objective) == (run("dsui").name, "dsui", "bounded")
        assert (row.data, row.backbone, row.recipe) == ("digits", "small", "demo, epochs=2")
        assert (row.seed, row.device) == (0, "cpu")
        assert row.protocol == f"{row.task}, all in-domain images of test"
        assert row.split == evaluated.sources.split
        assert row.versions["torch"] == torch.__version__
        assert row.metrics["passes"] == 1
        assert row.metrics["seconds_per_1000"] == pytest.approx(
            1000 * (row.seconds or 0) / 797, abs=1e-3
        )  # row.seconds is in ms
        assert ResultRow.from_json(row.to_json()) == row
    assert {row.objective for row in rows_of("misclassification", evaluation(run()))} == {None}


def test_a_run_is_asked_again_without_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    first = rows_of("ood", evaluation(run(), detectors=["knn"]), ("photos",))
    monkeypatch.delattr(cache, "load_model")
    assert rows_of("ood", evaluation(run(), detectors=["knn"]), ("photos",)) == first


def test_kept_outputs_are_scored_without_starting_a_gpu_and_rows_say_where_they_were_computed() -> None:
    here = evaluation(run())
    expected = rows_of("misclassification", here) + rows_of("ood", here, ("photos",))
    elsewhere = evaluation(run())
    elsewhere.cache.device = torch.device("cuda", 99)  # there is none
    evaluated = Evaluation(elsewhere.cache, elsewhere.sources)
    assert rows_of("misclassification", evaluated) + rows_of("ood", evaluated, ("photos",)) == expected
    assert {row.device for row in expected} == {"cpu"}


def test_held_out_images_are_scored_instead_of_the_test_split_and_are_those_of_every_seed() -> None:
    first, second = (evaluation(run(seed=seed, held_out=0.2), "held-out") for seed in (0, 1))
    rows = rows_of("misclassification", first)
    entropy = by_score(rows)["entropy"]
    assert (entropy.n_positive or 0) + (entropy.n_negative or 0) == 200
    assert entropy.protocol == "misclassification, all in-domain images of held-out"
    assert {row.split for row in rows} == {row.split for row in rows_of("misclassification", second)}
    assert entropy.split != by_score(rows_of("misclassification", evaluation(run(held_out=0.2))))["entropy"].split
    labels = [each.scores(each.sources.own())[0].part("labels") for each in (first, second)]
    assert labels[0] is not None
    assert labels[1] is not None
    assert torch.equal(labels[0], labels[1])


def test_detectors_are_fitted_to_training_images_and_score_beside_the_others() -> None:
    names = list(detectors.names())
    evaluated = evaluation(run(), detectors=names)
    rows = by_score(rows_of("ood", evaluated, ("photos",)))
    scores = {name.replace("-", "_") for name in names}
    assert rows.keys() == PLAIN | scores | {f"sirc_{name}" for name in scores}
    training = evaluated.cache.get(evaluated.sources.training()).whole()
    knn = KNN().fit(training)
    outputs = [
        evaluated.cache.get(source).whole() for source in (evaluated.sources.own(), evaluated.sources.foreign("photos"))
    ]
    ours, theirs = map(knn.score, outputs)
    check_against_sklearn(rows["knn"], ours, theirs)


def test_odin_scores_images_after_its_step_in_every_task() -> None:
    """Compared with ODIN on the images themselves, batch by batch, of the run's own, foreign and attacked images."""
    evaluated = evaluation(run("dsui"), detectors=["odin", "knn"])
    sources, model, odin = evaluated.sources, evaluated.cache.model, Odin()

    def by_images(source: ImageSource) -> torch.Tensor:
        images = source.load()
        inputs = source.inputs(model, images.read(torch.arange(len(images.labels))), images.labels)
        return torch.cat([odin.score_images(model.method, part, (0.5,)) for part in inputs.split(500)])

    own, foreign, attacked = sources.own(), sources.foreign("photos"), sources.attacked(0.1)
    ours = by_images(own)
    for rows, source in (
        (rows_of("ood", evaluated, ("photos",)), foreign),
        (rows_of("fgsm", evaluated, epsilons=(0.1,)), attacked),
    ):
        check_against_sklearn(by_score([row for row in rows if row.score == "odin"])["odin"], ours, by_images(source))
    assert {"odin", "sirc_odin"} <= by_score(rows_of("misclassification", evaluated)).keys()
    assert not torch.equal(ours, odin.score(evaluated.outputs(own).whole()))  # which is without the step


def test_odin_is_joined_by_the_moments_of_every_tenth_training_image() -> None:
    evaluated = evaluation(run(), detectors=["odin"])
    _, scores = evaluated.scores(evaluated.sources.own())
    images = evaluated.sources.training().load()
    tenth = evaluated.cache.model.transform.plain(images.read(torch.arange(0, len(images.labels), 10)))
    usual = Odin().score_images(evaluated.cache.model.method, tenth, (0.5,))
    joint = scores["max_probability"] + torch.nn.functional.softplus(
        (scores["odin"] - (usual.mean() + 3 * usual.std())) / usual.std()
    )
    torch.testing.assert_close(scores["sirc_odin"], joint)


def test_odin_leaves_the_other_rows_as_they_are_and_keeps_logits_alone() -> None:
    plain = evaluation(run(), detectors=["knn"]).evaluate(["misclassification", "ood"], ["photos"])
    evaluated = evaluation(run(), detectors=["knn", "odin"])
    rows = evaluated.evaluate(["misclassification", "ood"], ["photos"])
    assert [row for row in rows if row.score not in {"odin", "sirc_odin"}] == plain
    kept = evaluated.outputs(evaluated.sources.perturbed(evaluated.sources.own(), Odin()))
    assert set(kept.whole().tensors()) == {"features", "logits", "labels"}
    assert kept.whole().features.shape == (797, 0)


def test_odin_is_left_out_where_there_is_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    sampling = evaluation(
        run(neck=True, dropout=0.2, known="8,9"), method="mc-dropout", detectors=["odin"], warn=heard.append
    )
    assert "odin" not in by_score(rows_of("misclassification", sampling))
    assert heard == ["mc-dropout has several passes for each image and no single gradient, so odin is left out."]
    evaluated = evaluation(run(), detectors=["odin", "energy"], warn=heard.append, keep_outputs=False)
    predict = evaluated.cache.model.method.predict
    monkeypatch.setattr(evaluated.cache.model.method, "predict", torch.no_grad()(predict))
    with evaluated:
        assert "odin" not in by_score(evaluated.evaluate(["misclassification"]))
    assert heard[1:] == ["odin is left out: MaxSoftmax predicts without a gradient by its inputs, which ODIN needs."]


def test_a_detector_is_the_second_question_of_a_joint_score() -> None:
    """As written: (1 - max p) (1 + exp((S - (m + 3 s)) / s)), m and s of every tenth training image."""
    evaluated = evaluation(run(), detectors=["relative-mahalanobis", "energy"])
    rows = by_score(rows_of("ood", evaluated, ("photos",)))
    training = evaluated.cache.get(evaluated.sources.training()).whole()
    detector = RelativeMahalanobis().fit(training)
    usual = detector.score(training)[::10]
    low = usual.mean() + 3 * usual.std()
    outputs = [
        evaluated.cache.get(source).whole() for source in (evaluated.sources.own(), evaluated.sources.foreign("photos"))
    ]
    joint = [
        (1 - each.logits.double().softmax(1).amax(1)).log()
        + torch.log1p(((detector.score(each) - low) / usual.std()).exp())
        for each in outputs
    ]
    assert rows["sirc_relative_mahalanobis"].metrics["auroc"] == pytest.approx(
        roc_auc_score(np.arange(sum(map(len, joint))) >= len(joint[0]), torch.cat(joint).numpy()), abs=1e-12
    )
    plain = by_score(rows_of("ood", evaluation(run()), ("photos",)))
    assert rows["sirc_energy"].metrics["auroc"] == plain["sirc_energy"].metrics["auroc"]


def test_detectors_are_fitted_to_a_choice_of_a_large_set_that_no_order_of_classes_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted: list[Outputs] = []

    class Spy(Energy):
        def fit(self, train: Outputs) -> Spy:
            fitted.append(train)
            return self

    monkeypatch.setitem(detectors.DETECTORS, "energy", Spy)
    monkeypatch.setattr(fitting, "FIT_IMAGES", 300)
    evaluated = evaluation(run(), detectors=["energy"])
    rows_of("noise", evaluated)
    assert len(fitted) == 1
    whole = evaluated.cache.get(evaluated.sources.training()).whole()
    assert len(fitted[0]) == 300
    rows = {tuple(row) for row in whole.features.tolist()}
    assert len(rows & {tuple(row) for row in fitted[0].features.tolist()}) == 300
    labels = torch.arange(1000) % 4  # every fourth image would be of one class
    assert torch.bincount(labels[fitting.choose_fit_images(1000)]).min() > 50
    assert torch.equal(fitting.choose_fit_images(250), torch.arange(250))
    assert fitted[0].weight is not None


def test_a_detector_that_cannot_be_fitted_is_left_out_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(fitting, "FIT_IMAGES", 40)
    evaluated = evaluation(run(), detectors=["knn", "energy", "she"], warn=heard.append)
    rows = by_score(rows_of("noise", evaluated))
    assert "knn" not in rows
    assert "she" in rows
    _, detector, moments = evaluated._detectors["she"]
    whole = evaluated.cache.get(evaluated.sources.training()).whole()
    few = detector.score(whole.select(fitting.choose_fit_images(len(whole))))
    assert len(few) == 40
    assert moments == pytest.approx((few.mean().item(), few.std().item()))
    assert heard == [
        "knn is left out: KNN needs neighbour 50 and was given 40 training samples; give more, or a smaller k."
    ]


def test_passes_of_a_sampling_method_give_mutual_information_and_lack_a_last_layer() -> None:
    """The baseline's weights, read by MC dropout. Two classes that look alike make few images and some errors."""
    heard: list[str] = []
    path = run(neck=True, dropout=0.2, known="8,9")
    evaluated = evaluation(path, method="mc-dropout", detectors=["react", "energy", "mahalanobis"], warn=heard.append)
    rows = by_score(rows_of("misclassification", evaluated))
    assert rows.keys() == (PLAIN - {"energy", "sirc_energy", "foreignness"}) | {
        *("mutual_information", "mahalanobis", "sirc_mahalanobis")
    }
    assert heard == [
        "mc-dropout has no linear last layer, so react is left out.",
        "mc-dropout has log-probabilities for logits, which all have the same energy, so energy is left out.",
    ]
    assert {row.method for row in rows.values()} == {"mc-dropout"}
    assert rows["mutual_information"].metrics["passes"] == 50
    stored, scores = evaluated.scores(evaluated.sources.own())
    samples = stored.part("samples")
    assert samples is not None
    assert samples.shape == (len(scores["entropy"]), 50, 2)
    assert 0 < float(scores["mutual_information"].min()) < float(scores["mutual_information"].max()) < math.log(2)
    wrong = stored.whole().predictions != stored.whole().labels
    check_against_sklearn(rows["uncertainty"], scores["max_probability"][~wrong], scores["max_probability"][wrong])


def test_what_only_a_method_knows_is_a_row() -> None:
    rows = by_score(rows_of("misclassification", evaluation(run("logitnorm"))))
    assert rows.keys() == PLAIN | {"logit_norm", "normalized"}


def test_a_foreign_set_with_the_runs_own_classes_is_warned_of(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in ("3", "ladder"):
            (tmp_path / split / name).mkdir(parents=True)
            Image.new("L", (9, 9), 100).save(tmp_path / split / name / "a.png")
    heard: list[str] = []
    evaluated = evaluation(run(), warn=heard.append)
    rows = rows_of("ood", evaluated, ("photos", f"folder:{tmp_path}"))
    assert len(heard) == 1
    assert f"digits and folder:{tmp_path} share classes by name (1: 3 / 3)" in heard[0]
    assert {(row.foreign, row.n_positive) for row in rows} == {("photos", 1500), (f"folder:{tmp_path}", 2)}


def test_a_class_without_an_evaluated_image_is_told_of_once(tmp_path: Path) -> None:
    for split, labels in (("train", range(10)), ("test", range(1, 10))):
        digits = load("digits", split)
        for label in labels:
            (tmp_path / split / str(label)).mkdir(parents=True)
            place = (digits.labels == label).nonzero().flatten()[:2]
            for number, image in enumerate(digits.read(place)):
                Image.fromarray(image[0].numpy()).save(tmp_path / split / str(label) / f"{number}.png")
    told: list[str] = []
    evaluated = evaluation(run(), warn=told.append)
    evaluated.sources = ImageSources(
        replace(evaluated.sources.config, data=f"folder:{tmp_path}"), evaluated.sources.classes
    )
    rows_of("misclassification", evaluated)
    rows_of("noise", evaluated)
    assert told == ["no evaluated image is of the class 0, so the figures say nothing about it."]


def test_progress_names_the_set() -> None:
    heard: list[tuple[str, int, int]] = []
    with evaluation(run(), progress=lambda *news: heard.append(news), keep_outputs=False) as evaluated:
        rows_of("ood", evaluated, ("photos",))
    assert heard[-1] == ("photos", 1500, 1500)
    assert {name for name, _, _ in heard} == {"test", "train", "photos"}


def test_an_unknown_task_is_told() -> None:
    with pytest.raises(DsuiError, match=f"no task 'oods'; choose from {', '.join(TASKS)}"):
        rows_of("oods", evaluation(run()))
