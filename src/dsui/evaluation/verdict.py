"""What an evaluation means, in words: whether to use the model, why, and what to do next.

Facts go in, a verdict comes out; `dsui.evaluation.verdict_facts` collects the facts from results rows. Four questions
are asked (`dsui.evaluation.verdict_questions` has their rules), and a figure answers each by its two limits:

    yes       on the good side of both              partly    between them
    no        on the bad side of both               unknown   not measured, or its 95 % interval reaches across both

The worst answers decide, the first of them in the order of the questions:

    do not use         no, to whether it is right, whether its errors are found or foreign images turned away
    not enough known   unknown, to one of these
    use with care      partly, to one of these; or probabilities that are not calibrated, or not known to be
    can be used        yes to all

The verdict names that one reason, and the one step that would change the answer.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from dsui.evaluation.verdict_facts import Facts, facts_of_run
from dsui.evaluation.verdict_limits import FEWEST_FOR_THRESHOLD
from dsui.evaluation.verdict_questions import (
    Answer,
    Finding,
    calibrated,
    count,
    errors_found,
    foreign_turned_away,
    right,
)
from dsui.hub import is_cached

if TYPE_CHECKING:
    from dsui.runs.model import RunFacts


class Grade(StrEnum):
    """The verdict in a word."""

    do_not_use = "do not use"
    not_enough_known = "not enough known"
    use_with_care = "use with care"
    can_be_used = "can be used"


HEADLINES = {
    Grade.do_not_use: "Do not use this model",
    Grade.not_enough_known: "Not enough is known to use this model",
    Grade.use_with_care: "Use this model with care",
    Grade.can_be_used: "This model can be used",
}
NOT_EVALUATED = "This model was not evaluated, so it is unknown whether to trust it."
GRAVE = {
    Answer.no: Grade.do_not_use,
    Answer.unknown: Grade.not_enough_known,
    Answer.partly: Grade.use_with_care,
}
"""What the answers to the first three questions lead to, the worst one first."""


NO_BREAK = "\N{NO-BREAK SPACE}"


def unbroken(text: str) -> str:
    """For places where lines are broken: no figure is parted from its %."""
    return text.replace(" %", f"{NO_BREAK}%")


class Evidence(NamedTuple):
    """Whether there were enough images for all answers, and how many there were."""

    enough: bool
    sentence: str


@dataclass(frozen=True)
class Verdict:
    """`findings` answer the four questions, in their order; `reason` begins with a small letter."""

    grade: Grade
    reason: str
    next_step: str
    findings: tuple[Finding, ...]
    evidence: Evidence

    @property
    def headline(self) -> str:
        """The verdict and its reason, as one sentence."""
        return f"{HEADLINES[self.grade]}: {self.reason}."

    @property
    def short(self) -> str:
        """Two sentences."""
        return f"{self.headline} Next: {self.next_step}."

    def to_mapping(self) -> dict[str, object]:
        """For JSON."""
        return {
            "grade": str(self.grade),
            "headline": self.headline,
            "next_step": self.next_step,
            "answers": {each.question.name: str(each.answer) for each in self.findings},
            "sentences": [each.sentence for each in self.findings],
            "enough_images": self.evidence.enough,
            "evidence": self.evidence.sentence,
        }


def judge(facts: Facts) -> Verdict:
    """The verdict on a run that was evaluated."""
    grave, probabilities = [right(facts), errors_found(facts), foreign_turned_away(facts)], calibrated(facts)
    findings = (*grave, probabilities)
    deciding = [(grade, each) for answer, grade in GRAVE.items() for each in grave if each.answer is answer]
    if not deciding and probabilities.answer is not Answer.yes:
        deciding = [(Grade.use_with_care, probabilities)]
    if deciding:
        grade, first = deciding[0]
        reason, step = first.reason, first.next_step
    else:
        grade, reason, step = Grade.can_be_used, ", ".join(each.reason for each in findings), _how_to_use(facts)
    return Verdict(grade, reason, step, findings, _evidence(facts, findings))


def short_verdict(run: RunFacts) -> str:
    """The verdict, and in a second sentence what to do next, unless it is a model of the hub, which stays as it is."""
    facts = facts_of_run(run)
    if is_cached(run.path):
        return NOT_EVALUATED if facts is None else judge(facts).headline
    if facts is None:
        return f"{NOT_EVALUATED} Next: dsui evaluate {shlex.quote(str(run.path))}."
    return judge(facts).short


def _how_to_use(facts: Facts) -> str:
    if facts.held_out < FEWEST_FOR_THRESHOLD:
        return (
            "train it with --calibration 0.1, because a threshold needs images that are held out, and this run has "
            f"{facts.held_out or 'none'}"
        )
    if facts.saved:
        return f"predict with dsui predict {facts.run} IMAGES, which accepts by the saved threshold"
    if facts.evaluate_again is not None:
        return f"see what the threshold saved since lets through, with {facts.evaluate_again}"
    return f"keep a threshold in it with dsui threshold {facts.run} --coverage 0.95 --save"


def _evidence(facts: Facts, findings: Sequence[Finding]) -> Evidence:
    """The counts behind the answers; too few where an interval reached across both limits of a question."""
    counts = [count(facts.images, f"{facts.part} image")]
    counts += [] if facts.errors is None else [count(facts.errors, "error")]
    counts += [f"{count(each.images, 'image')} of {each.name}" for each in facts.foreign]
    held_out = f"{facts.held_out or 'no'} held-out images to choose thresholds by"
    sentence = f"Counted: {', '.join(counts)}; {held_out}. In brackets: 95 % intervals."
    sentences = [sentence]
    if facts.evaluate_again is not None:
        sentences.append(f"The run keeps a threshold that was not evaluated; do it with {facts.evaluate_again}.")
    few = [each.question for each in findings if each.too_few]
    sentences += [f"Too few for: {' '.join(few)}"] if few else []
    return Evidence(not few, " ".join(sentences))
