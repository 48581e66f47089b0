"""By what predictions are accepted: a largest value of one score, or of two, which must then both accept.

Of two scores one finds errors and one finds foreign images. They share one demand, so that a coverage of 0.95 stays the
share of images like the training images that is accepted **in all**. The two limits are the calibration values of equal
rank, so each score alone rejects the same number of calibration images; `dsui.runs.threshold` says how the rank is
chosen and what is promised.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dsui.limits import ASKED, LIMITS, Criterion, Finds, Limit, description, effect, reasons
from dsui.outputs import DEFINITION
from dsui.plain_json import load_json
from dsui.runs.risk_control import limits_at_risk
from dsui.runs.threshold import at_coverage, at_risk, joint_ranks, rank_for_coverage
from dsui.schema import NOTHING, check, choice, either, number, record, text, whole

TEXT = record(
    {
        "definition": choice(DEFINITION),
        "limits": LIMITS,
        "asked": ASKED,
        "coverage": number(0, 1),
        "risk": number(0, 1),
        "images": whole(1),
        "detector": either(text(), NOTHING),
    }
)


@dataclass(frozen=True)
class Thresholds:
    """An image is accepted if every one of the limits, one or two, accepts it. The other fields say how they were
    chosen, and what they do to the calibration images."""

    limits: tuple[Limit, ...]
    asked: Criterion
    coverage: float
    """The share of the calibration images that is accepted in all."""
    risk: float
    """The share of the accepted ones that is predicted wrongly."""
    images: int
    """The number of calibration images."""
    detector: str | None = None
    """The post-hoc detector that gives one of the scores."""

    @property
    def value(self) -> float:
        """The largest value of the first score that is accepted."""
        return self.limits[0].value

    def rejecting(self, scores: Mapping[str, Tensor]) -> Tensor:
        """[limits, N]: which of the limits reject each image, from its scores by name, [N] each. NaN is rejected."""
        return torch.stack([~(scores[limit.score] <= limit.value) for limit in self.limits])

    def accepted(self, scores: Mapping[str, Tensor]) -> Tensor:
        """[N]: which images are accepted."""
        return ~self.rejecting(scores).any(0)

    def reasons(self, scores: Mapping[str, Tensor]) -> list[str]:
        """[N]: "uncertain", "foreign" or "uncertain and foreign"; empty for accepted images."""
        return reasons(self.limits, self.rejecting(scores).T.tolist())

    @property
    def description(self) -> str:
        """As in "uncertainty up to 3.906 and foreignness up to -12.41"."""
        return description(self.limits)

    @property
    def sentence(self) -> str:
        """What they do, for people."""
        return effect(self.limits, self.coverage, self.risk, self.images)

    @property
    def saved_sentence(self) -> str:
        """The same of thresholds that the run keeps."""
        return f"{self.sentence} Saved in the run, by {self.asked.name}."

    def to_text(self) -> str:
        """JSON, which keeps every bit of a float."""
        return json.dumps(
            {
                "definition": DEFINITION,
                "limits": [limit._asdict() for limit in self.limits],
                "asked": self.asked._asdict(),
                "coverage": self.coverage,
                "risk": self.risk,
                "images": self.images,
                "detector": self.detector,
            }
        )

    @classmethod
    def from_text(cls, written: str) -> Thresholds:
        """The reverse of `to_text`; a ValueError where something is missing or wrong."""
        values: Any = load_json(written)
        check(values, TEXT)
        return cls(
            limits=tuple(Limit(each["score"], float(each["value"]), each["finds"]) for each in values["limits"]),
            asked=Criterion(values["asked"]["coverage"], values["asked"]["risk"]),
            coverage=float(values["coverage"]),
            risk=float(values["risk"]),
            images=values["images"],
            detector=values["detector"],
        )


def choose(
    finds: Mapping[str, Finds],
    scores: Mapping[str, Tensor],
    errors: Tensor,
    asked: Criterion,
    detector: str | None = None,
) -> Thresholds:
    """The limits of one score or two, which `finds` names, that meet what is asked.

    `scores` [N] each, in float64, and `errors` [N] are of calibration images. A DsuiError where they are too few.
    """
    asked.check()
    values = [scores[name] for name in finds]
    limits = _alone(values[0], errors, asked) if len(values) == 1 else _together(values, errors, asked)
    named = tuple(Limit(name, value, finds[name]) for name, value in zip(finds, limits, strict=True))
    chosen = Thresholds(named, asked, 0.0, 0.0, len(errors), detector)
    accepted = chosen.accepted(scores)
    coverage, risk = _share(accepted), _share(errors[accepted])
    return Thresholds(named, asked, coverage, risk, len(errors), detector)


def _alone(values: Tensor, errors: Tensor, asked: Criterion) -> list[float]:
    if asked.coverage is not None:
        return [at_coverage(values, errors, asked.coverage).value]
    assert asked.risk is not None
    return [at_risk(values, errors, asked.risk).value]


def _together(values: Sequence[Tensor], errors: Tensor, asked: Criterion) -> Iterable[float]:
    if asked.risk is not None:
        return limits_at_risk(values, errors, asked.risk)
    assert asked.coverage is not None
    rank = rank_for_coverage(joint_ranks(values, values), asked.coverage)
    return [each.sort().values[rank - 1].item() for each in values]


def _share(marked: Tensor) -> float:
    return marked.to(torch.float64).mean().item()
