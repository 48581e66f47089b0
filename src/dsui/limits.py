"""The largest values of scores that are accepted: one, or two of which both must accept. It needs no library.

`dsui.runs.acceptance` chooses them, and `dsui.runtime.facts` reads those in an ONNX file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from dsui.schema import NOTHING, choice, either, listed, number, record, text

Finds = Literal["errors", "foreign images"]
"""What a limit is for."""
REASONS: dict[Finds, str] = {"errors": "uncertain", "foreign images": "foreign"}
"""Why a limit rejects an image, in a word."""
SHARE = either(number(0, 1), NOTHING)
LIMITS = listed(record({"score": text(), "value": number(), "finds": choice(*REASONS)}), most=2, least=1)
ASKED = record({"coverage": SHARE, "risk": SHARE})


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


def reasons(limits: Sequence[Limit], rejecting: Iterable[Sequence[bool]]) -> list[str]:
    """[N]: "uncertain", "foreign" or "uncertain and foreign"; empty for accepted images. `rejecting` [N, limits] says
    which of the limits reject each image."""
    words = [REASONS[limit.finds] for limit in limits]
    return [" and ".join(word for word, rejects in zip(words, each, strict=True) if rejects) for each in rejecting]


def effect(limits: Iterable[Limit], coverage: float, risk: float, images: int) -> str:
    """What limits do to the calibration images, in a sentence: the share that is accepted, and that of errors in it."""
    shares = f"{coverage:.1%} of the {images:,} calibration images, {risk:.1%} of those wrong"
    return f"Accepting {description(limits)}: {shares}."


def description(limits: Iterable[Limit]) -> str:
    """As in "uncertainty up to 3.906 and foreignness up to -12.41"."""
    return " and ".join(f"{limit.score} up to {limit.value:.4g}" for limit in limits)
