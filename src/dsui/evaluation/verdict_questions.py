"""The questions of a verdict, each with its rule: facts in, an answer with its sentence, reason and next step out.

A figure's 95 % interval is compared with the limits of `dsui.evaluation.verdict_limits`, so that a handful of images
answers "unknown" and not by luck.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

from dsui.evaluation.intervals import auroc_interval, chance_ece, share_interval
from dsui.evaluation.statistics import Interval
from dsui.evaluation.verdict_facts import NOISE, BetterScore, Facts, ForeignSet
from dsui.evaluation.verdict_limits import FEW_ERRORS, FEWEST, FEWEST_FOR_THRESHOLD, FOUND, MISCALIBRATED, PASSED, RIGHT
from dsui.runs.temperature import FEWEST_IMAGES


class Answer(StrEnum):
    yes = "yes"
    partly = "partly"
    no = "no"
    unknown = "unknown"


class Question(StrEnum):
    right = "Is it right?"
    errors = "Are its errors found?"
    foreign = "Are foreign images turned away?"
    calibrated = "Do its probabilities hold?"


class Finding(NamedTuple):
    """`sentence` stands alone; `reason` is for the headline; `next_step` is what would change the answer."""

    question: Question
    answer: Answer
    sentence: str
    reason: str
    next_step: str = ""
    too_few: bool = False
    """Whether the answer is unknown because there were too few images."""


def answer_by(value: float, interval: Interval, bad: float, good: float) -> Answer:
    """By two limits, whichever of them is larger; unknown if the interval reaches across both."""
    sign = 1 if good > bad else -1
    low, high = sorted((sign * interval.low, sign * interval.high))
    if low < sign * bad and high >= sign * good:
        return Answer.unknown
    if sign * value >= sign * good:
        return Answer.yes
    return Answer.no if sign * value < sign * bad else Answer.partly


def right(facts: Facts) -> Finding:
    """Is it right often enough, among the predictions that it accepts?"""
    question = Question.right
    if facts.accuracy is None:
        step = f"evaluate it with dsui evaluate {facts.run}"
        return Finding(question, Answer.unknown, "Its accuracy was not measured.", "its accuracy is unknown", step)
    whole = share_interval(facts.accuracy, facts.images)
    share = facts.accuracy if facts.risk is None else 1 - facts.risk
    interval = share_interval(share, round(facts.images * (1 if facts.risk is None else facts.coverage)))
    guess = facts.guess
    bad, good = max(RIGHT[0], guess), max(RIGHT[1], (1 + guess) / 2)
    answer = answer_by(share, interval, bad, good)
    said = f"It is right in {percent(facts.accuracy)} of {facts.images:,} {facts.part} images ({between(whole)})"
    accepted = "" if facts.risk is None else f", and in {percent(share)} of those it accepts"
    sentence = f"{said}{accepted}."
    step = _learn(facts, "for longer (--set epochs=N)")
    if answer is Answer.unknown or (answer is not Answer.no and facts.images < FEWEST):
        reason = f"{facts.images:,} {facts.part} images are too few to judge it"
        return Finding(question, Answer.unknown, sentence, reason, _more_images(facts), True)
    if whole.low <= guess:
        reason = f"it is right in {percent(facts.accuracy)} of the images, where guessing reaches {percent(guess)}"
        return Finding(question, Answer.no, f"{sentence} Guessing reaches {percent(guess)}.", reason, step)
    if answer is Answer.yes:
        return Finding(question, answer, sentence, f"it is right in {percent(facts.accuracy)} of the images")
    accepting = "" if facts.risk is None else f" that it accepts at {facts.threshold}"
    return Finding(question, answer, sentence, f"{percent(1 - share)} of the predictions{accepting} are wrong", step)


def errors_found(facts: Facts) -> Finding:
    """Are its errors more uncertain than its correct predictions?"""
    question = Question.errors
    if facts.errors is None or facts.accuracy is None:
        step = f"evaluate it with dsui evaluate {facts.run} --tasks misclassification"
        sentence = "Whether its errors can be found was not evaluated."
        return Finding(question, Answer.unknown, sentence, "its errors were not looked at", step)
    if facts.errors == 0 or math.isnan(facts.errors_auroc):
        return _nothing_to_compare(question, facts)
    interval = auroc_interval(facts.errors_auroc, facts.errors, facts.images - facts.errors)
    answer = answer_by(facts.errors_auroc, interval, *FOUND)
    sentence = (
        f"In {percent(facts.errors_auroc)} of all pairs an error is more uncertain than a correct prediction "
        f"({between(interval)}; {count(facts.errors, 'error')})."
    )
    if facts.risk is not None:
        sentence += (
            f" Of the images accepted at {facts.threshold}, {percent(facts.risk)} are wrong in place of "
            f"{percent(1 - facts.accuracy)}."
        )
    figure = f"AUROC {percent(facts.errors_auroc)}"
    most = share_interval(1 - facts.accuracy, facts.images).high
    if answer is Answer.unknown and most <= FEW_ERRORS:
        return Finding(question, Answer.yes, sentence, f"at most {percent(most)} of its predictions are wrong")
    if answer is Answer.unknown:
        few = f"{count(facts.errors, 'error')} {'is' if facts.errors == 1 else 'are'} too few"
        reason = f"{few} to say whether its errors can be found"
        return Finding(question, answer, sentence, reason, _more_images(facts), True)
    if answer is Answer.yes:
        return Finding(question, answer, sentence, f"its errors can be found ({figure})")
    hardly = "are hardly" if answer is Answer.no else "are not always"
    reason = f"its errors {hardly} more uncertain than its correct predictions ({figure})"
    better = facts.better_for_errors
    step = _learn(facts) if better is None else _use(facts, better, f"AUROC {percent(better.share)}")
    return Finding(question, Answer.partly if most <= FEW_ERRORS else answer, sentence, reason, step)


def _nothing_to_compare(question: Question, facts: Facts) -> Finding:
    """Every prediction is right, or every one is wrong."""
    if facts.errors:
        sentence = "It made nothing but errors, so nothing tells them apart."
        return Finding(question, Answer.unknown, sentence, "it is never right", _learn(facts))
    most = share_interval(0.0, facts.images).high
    sentence = (
        f"It made no error in {facts.images:,} images, so there was none to find; up to {percent(most)} of such images "
        "may be wrong."
    )
    if most <= FEW_ERRORS:
        return Finding(question, Answer.yes, sentence, "it made no error")
    reason = f"{facts.images:,} images without an error do not show whether its errors can be found"
    return Finding(question, Answer.unknown, sentence, reason, _more_images(facts), True)


def foreign_turned_away(facts: Facts) -> Finding:
    """Are foreign images rejected at the threshold? The worst set decides; noise alone shows little."""
    question = Question.foreign
    kind, what = ("features:FILE", "features of images") if facts.on_features else ("folder:PATH", "images")
    ask = f"dsui evaluate {facts.run} --foreign {kind}, with {what} that may come and do not belong"
    if not facts.foreign:
        sentence = "No foreign images were evaluated."
        return Finding(question, Answer.unknown, sentence, "no foreign images were shown to it", ask)
    judged = [(each, _turned_away(each)) for each in facts.foreign]
    order = (Answer.no, Answer.unknown, Answer.partly, Answer.yes)
    worst, answer = min(judged, key=lambda pair: (order.index(pair[1]), -pair[0].passed))
    listed = ", ".join(f"{percent(each.passed)} of {each.name} ({between(each.interval)})" for each in facts.foreign)
    sentence = f"At {facts.threshold} these foreign images pass: {listed}."
    share = percent(worst.passed)
    if answer is Answer.unknown:
        reason = f"{worst.images:,} images of {worst.name} are too few to say whether foreign images are turned away"
        step = f"evaluate it on more images of {worst.name}"
        return Finding(question, answer, sentence, reason, step, True)
    if answer is Answer.yes:
        if all(each.name == NOISE for each in facts.foreign):
            return Finding(question, Answer.unknown, sentence, "noise alone was tried as foreign images", ask)
        passing = f"at most {share} of {worst.name} pass" if worst.passed else "none pass"
        reason = f"foreign images are turned away ({passing} at {facts.threshold})"
        return Finding(question, answer, sentence, reason)
    reason = f"{share} of {worst.phrase} pass at {facts.threshold}"
    return Finding(question, answer, sentence, reason, _against_foreign(facts))


def _turned_away(foreign: ForeignSet) -> Answer:
    answer = answer_by(foreign.passed, foreign.interval, *PASSED)
    return Answer.unknown if answer is not Answer.no and foreign.images < FEWEST else answer


def _against_foreign(facts: Facts) -> str:
    if (better := facts.better_for_foreign) is not None:
        return _use(facts, better, f"at most {percent(better.share)} pass" if better.share else "none pass")
    if not facts.detectors_tried:
        return f"look for a better score with dsui evaluate {facts.run} --detectors all"
    return _learn(facts)


def calibrated(facts: Facts) -> Finding:
    """Do its probabilities hold? Chance alone raises the ECE of few images."""
    question = Question.calibrated
    if facts.ece is None or facts.accuracy is None:
        step = f"evaluate it with dsui evaluate {facts.run} --tasks misclassification"
        sentence = "Its probabilities were not evaluated."
        return Finding(question, Answer.unknown, sentence, "its probabilities were not looked at", step)
    bad, good = MISCALIBRATED
    certain = max(0.0, facts.ece - chance_ece(facts.accuracy, facts.images))
    answer = answer_by(facts.ece, Interval(certain, facts.ece), bad, good)
    if answer is Answer.partly and certain <= good:
        answer = Answer.unknown
    scaled = "" if facts.temperature is None else f" after scaling by a temperature of {facts.temperature:.3g}"
    stated = ""
    if facts.confidence is not None:
        gap = facts.confidence - facts.accuracy
        word = "too sure" if gap > 0 else "too unsure"
        stated = f"; on average it states {percent(facts.confidence)} and is right in {percent(facts.accuracy)}"
        stated += f", so it is {word}" if abs(gap) > facts.ece / 2 and answer in (Answer.no, Answer.partly) else ""
    sentence = f"Its probabilities are off by {percent(facts.ece)} on average (ECE){scaled}{stated}."
    if answer is Answer.unknown:
        reason = f"{facts.images:,} images are too few to say whether its probabilities hold"
        return Finding(question, answer, sentence, reason, _more_images(facts), True)
    if answer is Answer.yes:
        return Finding(question, answer, sentence, f"its probabilities hold (ECE {percent(facts.ece)})")
    step = (
        f"train it with --calibration 0.1 or more: {FEWEST_IMAGES} held-out images or more scale its probabilities"
        if facts.temperature is None
        else "do not read its probabilities as chances, and hold out more images (--calibration 0.2)"
    )
    return Finding(question, answer, sentence, f"its probabilities are off by {percent(facts.ece)} (ECE)", step)


def _use(facts: Facts, better: BetterScore, reached: str) -> str:
    """A threshold on the score, which takes held-out images."""
    if facts.held_out < FEWEST_FOR_THRESHOLD:
        return f"train it with --calibration 0.1, and use {better.option} then ({reached})"
    return f"use {better.option} ({reached}): dsui threshold {facts.run} --coverage 0.95 {better.option} --save"


def _learn(facts: Facts, otherwise: str = "compare another --method") -> str:
    """Few photographs teach a network little, and one that has seen millions much; docs/guide.md has figures."""
    if facts.images_folder is None:
        return f"train it on more images, or {otherwise}"
    return (
        "train on the features of a pretrained network, with dsui embed --backbone hf:facebook/dinov2-small "
        f"--data {facts.images_folder} --out features.safetensors, or on more images"
    )


def _more_images(facts: Facts) -> str:
    if facts.part == "test":
        return "evaluate it on more test images"
    return f"evaluate it on its test images, with dsui evaluate {facts.run}"


def count(number: int, thing: str) -> str:
    """As in "1 error" and "1,541 errors"."""
    return f"{number:,} {thing}{'s' * (number != 1)}"


def percent(share: float) -> str:
    """As in "98 %"; with a decimal near the ends, where "100 %" and "0 %" mean all and none."""
    value = 100 * share
    if 0 < value < 100:
        value = min(max(value, 0.1), 99.9)
    digits = f"{value:.0f}" if 10 <= value <= 90 else f"{value:.1f}".removesuffix(".0")
    return f"{digits} %"


def between(interval: Interval) -> str:
    return f"{percent(interval.low).removesuffix(' %')} to {percent(interval.high)}"
