"""What an ONNX file of `dsui export` says of itself: one JSON object in its metadata, under the key "dsui".

A file from another version of the format is refused. Keys that this version does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from dsui.backbones.preparation import RESIZING, Preparation
from dsui.limits import ASKED, LIMITS, Criterion, Limit, effect
from dsui.plain_json import load_json
from dsui.schema import NOTHING, check, choice, either, listed, number, record, text, whole

KEY, CHECKS = "dsui", "dsui-checks"
"""Of the metadata: the facts, and what the checks of the export measured."""
FORMAT = 1
LARGEST_SIDE = 1 << 13
"""Pixels of a model's images; a file that says more would fill the memory."""
MOST_CLASSES = 1 << 16
QUANTILES = 101
"""0 %, 1 %, ..., 100 %."""
NEEDED = ("label", "probabilities", "uncertainty")
"""Outputs that every file has."""
_QUANTILES = listed(number(), most=QUANTILES, least=QUANTILES)
METADATA = record(
    {
        "format": choice(FORMAT),
        "dsui": text(),
        "name": text(),
        "method": text(),
        "backbone": text(),
        "data": text(4096),
        "weights": text(),
        "created": text(),
        "input": choice("images", "features"),
        "channels": whole(1, 1 << 20),
        "size": either(whole(1, LARGEST_SIDE), NOTHING),
        "preparation": either(record({**RESIZING, "edge": whole(1, 2 * LARGEST_SIDE)}), NOTHING),
        "classes": listed(text(), most=MOST_CLASSES, least=2),
        "outputs": listed(text(), least=len(NEEDED)),
        "precision": choice("fp32", "fp16", "int8"),
        "temperature": either(number(), NOTHING),
        "thresholds": either(
            record(
                {
                    "limits": LIMITS,
                    "asked": ASKED,
                    "coverage": number(0, 1),
                    "risk": number(0, 1),
                    "images": whole(1),
                }
            ),
            NOTHING,
        ),
        "promise": either(text(), NOTHING),
        "calibration": either(
            record({"images": whole(1), "errors": whole(0), "uncertainty": _QUANTILES}, {"foreignness": _QUANTILES}),
            NOTHING,
        ),
        "verdict": either(record({"grade": text(), "headline": text(), "next_step": text()}), NOTHING),
    }
)


class ThresholdFacts(NamedTuple):
    """The thresholds in the graph. `coverage` and `risk` are what they do to the `images` calibration images: the share
    that is accepted, and the share of these that is predicted wrongly."""

    limits: tuple[Limit, ...]
    asked: Criterion
    coverage: float
    risk: float
    images: int

    @property
    def sentence(self) -> str:
        """What they do, for people."""
        return effect(self.limits, self.coverage, self.risk, self.images)


class CalibrationFacts(NamedTuple):
    """Of held-out images: their number, how many are predicted wrongly, and the 0, 1, ..., 100 % quantiles of
    scores."""

    images: int
    errors: int
    uncertainty: tuple[float, ...]
    foreignness: tuple[float, ...] | None


class VerdictFacts(NamedTuple):
    """What `dsui evaluate` said of the run."""

    grade: str
    headline: str
    next_step: str

    @property
    def short(self) -> str:
        """Two sentences."""
        return f"{self.headline} Next: {self.next_step}."


@dataclass(frozen=True)
class ModelFacts:
    """`size` and `preparation` are None for a model that takes features. `preparation` is None also where an image is
    made by its central square. `channels` are then those of an image, or the number of features."""

    dsui: str
    """The version that exported it."""
    name: str
    method: str
    backbone: str
    data: str
    weights: str
    """SHA-256 of the run's weights."""
    created: str
    input: Literal["images", "features"]
    channels: int
    size: int | None
    preparation: Preparation | None
    classes: tuple[str, ...]
    outputs: tuple[str, ...]
    precision: Literal["fp32", "fp16", "int8"]
    temperature: float | None
    thresholds: ThresholdFacts | None
    promise: str | None
    calibration: CalibrationFacts | None
    verdict: VerdictFacts | None

    @property
    def saved_threshold(self) -> str | None:
        """What the thresholds inside do, for people."""
        found = self.thresholds
        return None if found is None else f"{found.sentence} Saved in the file, by {found.asked.name}."

    @property
    def short_verdict(self) -> str:
        """Two sentences, or that it was not evaluated."""
        unknown = "This model was not evaluated, so it is unknown whether to trust it."
        return unknown if self.verdict is None else self.verdict.short

    @classmethod
    def from_text(cls, written: str | bytes) -> ModelFacts:
        """Of the JSON object; a ValueError with a clause where something is missing or wrong."""
        values: Any = load_json(written)
        if isinstance(values, Mapping) and type(found := values.get("format")) is int and found != FORMAT:
            raise ValueError(f"it has the format {found}, and this dsui reads {FORMAT}")
        check(values, METADATA)
        plain = ("dsui", "name", "method", "backbone", "data", "weights", "created", "input", "channels")
        facts = cls(
            **{name: values[name] for name in (*plain, "precision", "temperature", "promise")},
            size=values["size"] if values["input"] == "images" else None,
            preparation=_preparation(values),
            classes=tuple(values["classes"]),
            outputs=tuple(values["outputs"]),
            thresholds=_thresholds(values["thresholds"]),
            calibration=_calibration(values["calibration"]),
            verdict=_verdict(values["verdict"]),
        )
        facts._check_agreement()
        return facts

    def _check_agreement(self) -> None:
        """Parts of it against each other."""
        if self.input == "images" and (self.size is None or self.channels not in {1, 3}):
            raise ValueError(f"it takes images of size {self.size} with {self.channels} channels, which none have")
        wanted = list(NEEDED)
        if self.thresholds is not None:
            wanted += ["accepted", *(limit.score for limit in self.thresholds.limits)]
        for name in wanted:
            if name not in self.outputs:
                raise ValueError(f"it lists no output {name}")


def _preparation(values: Mapping[str, Any]) -> Preparation | None:
    found = values["preparation"]
    if found is None or values["input"] != "images" or values["size"] is None:
        return None
    if found["fit"] == "crop" and found["edge"] < values["size"]:
        raise ValueError(f"it cuts images of {values['size']} pixels out of {found['edge']}")
    return Preparation(size=values["size"], **{name: found[name] for name in RESIZING})


def _thresholds(found: Mapping[str, Any] | None) -> ThresholdFacts | None:
    if found is None:
        return None
    limits = tuple(Limit(each["score"], float(each["value"]), each["finds"]) for each in found["limits"])
    asked = Criterion(found["asked"]["coverage"], found["asked"]["risk"])
    return ThresholdFacts(limits, asked, float(found["coverage"]), float(found["risk"]), found["images"])


def _calibration(found: Mapping[str, Any] | None) -> CalibrationFacts | None:
    if found is None:
        return None
    foreign = found.get("foreignness")
    own = tuple(map(float, found["uncertainty"]))
    return CalibrationFacts(
        found["images"], found["errors"], own, None if foreign is None else tuple(map(float, foreign))
    )


def _verdict(found: Mapping[str, Any] | None) -> VerdictFacts | None:
    return None if found is None else VerdictFacts(found["grade"], found["headline"], found["next_step"])
