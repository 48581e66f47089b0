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
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from dsui.outputs import DEFINITION
from dsui.plain_json import load_json
from dsui.runs.risk_control import limits_at_risk
from dsui.runs.threshold import at_coverage, at_risk, joint_ranks, rank_for_coverage
from dsui.schema import NOTHING, check, choice, either, listed, number, record, text, whole

Finds = Literal["errors", "foreign images"]
"""What a limit is for."""
REASONS: dict[Finds, str] = {"errors": "uncertain", "foreign images": "foreign"}
"""Why a limit rejects an image, in a word."""
SHARE = either(number(0, 1), NOTHING)
TEXT = record(
    {
        "definition": choice(DEFINITION),
        "limits": listed(
            record({"score": text(), "value": number(), "finds": choice(*REASONS)}),
            most=2,
            least=1,
        ),
        "asked": record({"coverage": SHARE, "risk": SHARE}),
        "coverage": number(0, 1),
        "risk": number(0, 1),
        "images": whole(1),
        "detector": either(text(), NOTHING),
    }
)


class Criterion(NamedTuple):
    """What a threshold is chosen by: the share of accepted images, the share of wrong ones among them, or nothing."""

    coverage: float | None = None
    risk: float | None = None

    @property
    def name(self) -> str:
        if self.coverage is not None:
            return f"coverage {self.coverage:g}"
        return "no threshold" if self.risk is None else f"risk {self.risk:g}"

    def check(self) -> None:
        """Raise unless it is a coverage or a risk."""
        if (self.coverage is None) == (self.risk is None):
            raise ValueError("choose a threshold by coverage or by risk, one of the two.")


class Limit(NamedTuple):
    """Values of a score up to `value` are accepted."""

    score: str
    value: float
    finds: Finds


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
        words = [REASONS[limit.finds] for limit in self.limits]
        return [
            " and ".join(word for word, rejects in zip(words, column, strict=True) if rejects)
            for column in self.rejecting(scores).T.tolist()
        ]

    @property
    def description(self) -> str:
        """As in "uncertainty up to 3.906 and foreignness up to -12.41"."""
        return " and ".join(f"{limit.score} up to {limit.value:.4g}" for limit in self.limits)

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
