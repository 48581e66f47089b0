"""Verdicts on made cases: each rule gives the grade, the reason and the one next step that its docstring promises."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsui.evaluation.statistics import Interval
from dsui.evaluation.verdict import Grade, Verdict, judge
from dsui.evaluation.verdict_facts import BetterScore, Facts, ForeignSet
from dsui.evaluation.verdict_questions import Answer, answer_by, percent

GOOD = Facts(
    run="runs/mine",
    classes=10,
    held_out=300,
    images=2000,
    accuracy=0.95,
    majority=0.11,
    errors=100,
    errors_auroc=0.93,
    risk=0.02,
    foreign=(ForeignSet("photos", 1500, 0.08), ForeignSet("noise", 10_000, 0.01)),
    ece=0.012,
    confidence=0.945,
    temperature=1.2,
)
BLIND = replace(GOOD, foreign=(ForeignSet("photos", 1500, 0.98), ForeignSet("noise", 10_000, 0.1)))


def answers(verdict: Verdict) -> list[str]:
    return [str(each.answer) for each in verdict.findings]


def test_a_good_model_can_be_used_and_the_next_step_uses_it() -> None:
    verdict = judge(GOOD)
    assert verdict.grade is Grade.can_be_used
    assert answers(verdict) == ["yes"] * 4
    assert verdict.evidence.enough
    assert verdict.headline == (
        "This model can be used: it is right in 95 % of the images, its errors can be found (AUROC 93 %), foreign "
        "images are turned away (at most 8 % of photos pass at coverage 0.95), its probabilities hold (ECE 1.2 %)."
    )
    assert verdict.next_step == "keep a threshold in it with dsui threshold runs/mine --coverage 0.95 --save"


def test_the_saved_threshold_is_named_and_one_that_was_not_evaluated_is_not_judged_by() -> None:
    saved = judge(replace(GOOD, saved=True, threshold="the saved threshold of coverage 0.9", coverage=0.9))
    assert "pass at the saved threshold of coverage 0.9" in saved.headline
    assert saved.next_step.startswith("predict with dsui predict runs/mine IMAGES")
    newer = judge(replace(GOOD, evaluate_again="dsui evaluate runs/mine"))
    assert "coverage 0.95" in newer.headline
    assert "keeps a threshold that was not evaluated; do it with dsui evaluate runs/mine." in newer.evidence.sentence


@pytest.mark.parametrize(("held_out", "said"), [(0, "none"), (18, "18")])
def test_without_enough_held_out_images_the_next_step_is_to_hold_some_out(held_out: int, said: str) -> None:
    step = judge(replace(GOOD, held_out=held_out)).next_step
    assert step.startswith("train it with --calibration 0.1")
    assert step.endswith(said)


def test_a_foreign_blind_model_is_not_to_be_used_and_the_score_that_sees_is_named() -> None:
    verdict = judge(replace(BLIND, better_for_foreign=BetterScore("--score foreignness", 0.11)))
    assert verdict.short == (
        "Do not use this model: 98 % of foreign images (photos) pass at coverage 0.95. "
        "Next: use --score foreignness (at most 11 % pass): "
        "dsui threshold runs/mine --coverage 0.95 --score foreignness --save."
    )
    without = replace(BLIND, better_for_foreign=BetterScore("--score foreignness", 0.11), held_out=18)
    assert judge(without).next_step == (
        "train it with --calibration 0.1, and use --score foreignness then (at most 11 % pass)"
    )
    assert answers(verdict) == ["yes", "yes", "no", "yes"]
    assert "--detectors all" in judge(BLIND).next_step
    assert judge(replace(BLIND, detectors_tried=True)).next_step.startswith("train it on more images")


def test_a_network_that_learned_from_a_folder_alone_is_told_to_try_a_pretrained_one() -> None:
    alone = replace(GOOD, accuracy=0.4, errors=1200, risk=0.58, images_folder="'folder:my images'")
    assert judge(alone).next_step == (
        "train on the features of a pretrained network, with dsui embed --backbone hf:facebook/dinov2-small "
        "--data 'folder:my images' --out features.safetensors, or on more images"
    )


def test_the_worst_foreign_set_decides_and_the_others_are_told() -> None:
    verdict = judge(BLIND)
    assert "98 % of photos" in verdict.findings[2].sentence
    assert "10 % of noise" in verdict.findings[2].sentence
    between = replace(GOOD, foreign=(ForeignSet("photos", 1500, 0.02), ForeignSet("svhn", 1500, 0.4)))
    assert judge(between).headline == ("Use this model with care: 40 % of foreign images (svhn) pass at coverage 0.95.")


def test_a_model_that_guesses_is_not_to_be_used() -> None:
    useless = replace(GOOD, accuracy=0.112, errors=1776, errors_auroc=0.5, risk=0.885, ece=0.02)
    verdict = judge(useless)
    assert verdict.headline == (
        "Do not use this model: it is right in 11 % of the images, where guessing reaches 11 %."
    )
    assert verdict.next_step.startswith("train it on more images")


def test_naming_the_most_frequent_class_counts_as_guessing() -> None:
    lazy = replace(GOOD, classes=2, majority=0.95)
    assert judge(lazy).grade is Grade.do_not_use
    assert "guessing reaches 95 %" in judge(lazy).headline
    assert judge(replace(lazy, majority=None)).grade is Grade.can_be_used  # of older rows: one half


def test_a_model_that_is_more_often_wrong_than_right_is_not_to_be_used() -> None:
    verdict = judge(replace(GOOD, accuracy=0.4, errors=1200, errors_auroc=0.85, risk=0.58))
    assert verdict.headline == (
        "Do not use this model: 58 % of the predictions that it accepts at coverage 0.95 are wrong."
    )


def test_errors_that_cannot_be_found_count_unless_they_are_few() -> None:
    hidden = replace(GOOD, errors_auroc=0.6)
    assert judge(replace(hidden, accuracy=0.93, errors=140)).headline == (
        "Do not use this model: its errors are hardly more uncertain than its correct predictions (AUROC 60 %)."
    )
    few = replace(hidden, accuracy=0.97, errors=60)
    assert judge(few).grade is Grade.use_with_care
    better = replace(few, better_for_errors=BetterScore("--score entropy", 0.91))
    assert judge(better).next_step.startswith("use --score entropy (AUROC 91 %): dsui threshold runs/mine ")


@pytest.mark.parametrize(("confidence", "word"), [(0.99, "too sure"), (0.72, "too unsure")])
def test_probabilities_that_do_not_hold_ask_for_care_and_say_in_which_direction(confidence: float, word: str) -> None:
    off = replace(GOOD, accuracy=0.85, errors=300, risk=0.09, ece=0.14, confidence=confidence, temperature=None)
    verdict = judge(off)
    assert verdict.grade is Grade.use_with_care
    assert "its probabilities are off by 14 % (ECE)" in verdict.headline
    assert verdict.findings[3].sentence.endswith(f"so it is {word}.")
    assert "50 held-out images" in verdict.next_step
    assert "do not read its probabilities" in judge(replace(off, temperature=0.8)).next_step
    assert judge(replace(off, ece=0.3)).findings[3].answer is Answer.no


def test_too_few_images_say_so_and_ask_for_more() -> None:
    few = replace(
        GOOD, images=12, accuracy=11 / 12, errors=1, errors_auroc=1.0, risk=0.0, foreign=(ForeignSet("cats", 4, 0.0),)
    )
    verdict = judge(few)
    assert verdict.grade is Grade.not_enough_known
    assert verdict.headline.endswith("12 test images are too few to judge it.")
    assert verdict.next_step == "evaluate it on more test images"
    held_out = judge(replace(few, part="held-out")).next_step
    assert held_out == "evaluate it on its test images, with dsui evaluate runs/mine"
    assert not verdict.evidence.enough
    assert verdict.evidence.sentence.startswith("Counted: 12 test images, 1 error, 4 images of cats;")
    assert "Too few for: Is it right? Are its errors found? Are foreign images turned" in verdict.evidence.sentence
    errors = replace(GOOD, images=400, accuracy=397 / 400, errors=3, errors_auroc=0.85)
    assert judge(replace(errors, risk=0.0)).grade is Grade.can_be_used  # so few errors need no finding
    errors = replace(GOOD, images=60, accuracy=56 / 60, errors=4, errors_auroc=0.85, risk=0.04)
    assert judge(errors).headline.endswith("4 errors are too few to say whether its errors can be found.")


def test_few_foreign_images_are_enough_to_show_that_they_pass_and_not_that_they_do_not() -> None:
    assert judge(replace(GOOD, foreign=(ForeignSet("cats", 5, 1.0),))).grade is Grade.do_not_use
    assert judge(replace(GOOD, foreign=(ForeignSet("cats", 30, 0.0),))).grade is Grade.can_be_used
    unknown = judge(replace(GOOD, foreign=(ForeignSet("cats", 29, 0.0),)))
    assert unknown.grade is Grade.not_enough_known
    assert unknown.next_step == "evaluate it on more images of cats"


@pytest.mark.parametrize("foreign", [(), (ForeignSet("noise", 10_000, 0.0),)])
def test_without_foreign_images_or_with_noise_alone_too_little_is_known(foreign: tuple[ForeignSet, ...]) -> None:
    verdict = judge(replace(GOOD, foreign=foreign))
    assert verdict.grade is Grade.not_enough_known
    assert verdict.next_step.startswith("dsui evaluate runs/mine --foreign folder:PATH")
    features = judge(replace(GOOD, foreign=foreign, on_features=True))
    assert features.next_step.startswith("dsui evaluate runs/mine --foreign features:FILE, with features of images")


def test_foreign_images_of_which_none_passes_are_told_in_a_word() -> None:
    headline = judge(replace(GOOD, foreign=(ForeignSet("photos", 1500, 0.0),))).headline
    assert "foreign images are turned away (none pass at coverage 0.95)" in headline


def test_noise_that_passes_is_reason_enough() -> None:
    verdict = judge(replace(GOOD, foreign=(ForeignSet("noise", 10_000, 1.0),)))
    assert verdict.headline == "Do not use this model: 100 % of noise images pass at coverage 0.95."


def test_no_error_among_many_images_is_good_and_among_few_unknown() -> None:
    perfect = replace(GOOD, accuracy=1.0, errors=0, errors_auroc=math.nan, risk=0.0, ece=0.001)
    assert judge(perfect).grade is Grade.can_be_used
    assert "up to 0.2 % of such images may be wrong" in judge(perfect).findings[1].sentence
    few = judge(replace(perfect, images=40))
    assert few.grade is Grade.not_enough_known
    assert "40 images without an error" in few.headline


def test_nothing_but_errors_is_no_model() -> None:
    verdict = judge(replace(GOOD, accuracy=0.0, errors=2000, errors_auroc=math.nan, risk=1.0, ece=0.5))
    assert verdict.grade is Grade.do_not_use


def test_figures_that_were_not_measured_are_unknown_and_the_command_that_measures_them_is_named() -> None:
    verdict = judge(Facts(run="runs/mine", classes=10, held_out=0, images=500))
    assert answers(verdict) == ["unknown"] * 4
    assert verdict.grade is Grade.not_enough_known
    assert verdict.next_step == "evaluate it with dsui evaluate runs/mine"


@given(
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(1, 100_000),
    st.integers(1, 100_000),
)
def test_every_evaluation_gets_a_verdict_with_one_reason_and_one_step(
    accuracy: float, auroc: float, passed: float, ece: float, images: int, foreign: int
) -> None:
    errors = round((1 - accuracy) * images)
    facts = replace(
        GOOD,
        images=images,
        accuracy=1 - errors / images,
        errors=errors,
        errors_auroc=auroc if 0 < errors < images else math.nan,
        risk=min(1.0, errors / images),
        foreign=(ForeignSet("photos", foreign, passed),),
        ece=ece,
    )
    verdict = judge(facts)
    assert verdict.reason
    assert verdict.next_step
    assert verdict.evidence.enough == ("Too few" not in verdict.evidence.sentence)
    worst = Answer.no in [each.answer for each in verdict.findings[:3]]
    assert (verdict.grade is Grade.do_not_use) == worst
    if verdict.grade is Grade.can_be_used:
        assert answers(verdict) == ["yes"] * 4


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (0.875, 0.625, 1.0, "yes"),
        (0.875, 0.375, 1.0, "unknown"),
        (0.625, 0.5, 0.75, "partly"),
        (0.625, 0.375, 0.75, "unknown"),
        (0.375, 0.25, 0.625, "no"),
        (0.375, 0.25, 0.75, "unknown"),
        (0.75, 0.5, 0.875, "yes"),
    ],
)
def test_an_interval_across_both_limits_decides_nothing(value: float, low: float, high: float, expected: str) -> None:
    """Also where small figures are the good ones; eighths are exact."""
    assert answer_by(value, Interval(low, high), 0.5, 0.75) == expected
    assert answer_by(1 - value, Interval(1 - high, 1 - low), 0.5, 0.25) == expected


def test_shares_are_printed_as_they_are() -> None:
    shown = [percent(share) for share in (0, 1, 0.5, 0.98, 0.984, 0.0004, 0.99996, 0.041, 0.05)]
    assert shown == ["0 %", "100 %", "50 %", "98 %", "98.4 %", "0.1 %", "99.9 %", "4.1 %", "5 %"]
