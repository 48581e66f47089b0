"""What calibration promised of a stream of predictions, and the monitors that watch it.

A threshold by coverage c on one score promises how many images are accepted. One by risk was chosen by labels among as
many ranks as there are calibration images, which its monitor takes into account. Of two thresholds together the rate is
not known exactly, so only their scores are watched. Every score with known calibration values has a monitor of
its distribution. The chance of a false alarm is divided equally among all monitors, so it holds for any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dsui.monitoring.acceptance import AcceptanceMonitor
from dsui.monitoring.risk import RiskMonitor
from dsui.monitoring.uncertainty import LEAST, QUANTILES, UncertaintyMonitor
from dsui.plain_json import load_json
from dsui.schema import NOTHING, check, either, listed, number, record, text, whole

SHARE = either(number(0, 1), NOTHING)
MOST_CLASSES = 1 << 20
_QUANTILES = listed(number(), most=QUANTILES, least=QUANTILES)
METADATA = record(
    {
        "thresholds": either(
            record(
                {
                    "limits": listed(record({"score": text(), "value": number()}), most=2, least=1),
                    "asked": record({"coverage": SHARE, "risk": SHARE}),
                    "coverage": number(0, 1),
                    "images": whole(1),
                }
            ),
            NOTHING,
        ),
        "calibration": either(
            record({"images": whole(1), "uncertainty": _QUANTILES}, {"foreignness": _QUANTILES}), NOTHING
        ),
    },
    {"classes": listed(text(), most=MOST_CLASSES)},
)
"""What monitors need of the metadata of a model.onnx."""
Monitor = AcceptanceMonitor | UncertaintyMonitor | RiskMonitor


@dataclass(frozen=True)
class Promise:
    """Of `images` calibration images: by what the threshold was `asked` for, how large a share of them it accepts, and
    their scores by name, all of them or 101 quantiles. `most` are the largest scores that are accepted, where they are
    known, and `classes` those of the run."""

    images: int
    limits: tuple[str, ...] = ()
    """The scores of the thresholds; none where there is no threshold."""
    asked_coverage: float | None = None
    asked_risk: float | None = None
    accepted: float | None = None
    scores: Mapping[str, Sequence[float]] = field(default_factory=dict)
    quantiles: Mapping[str, Sequence[float]] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)
    classes: tuple[str, ...] = ()

    @classmethod
    def of_metadata(cls, written: str | bytes) -> Promise:
        """From the JSON in a model.onnx; a ValueError with a clause where it cannot be used."""
        values: Any = load_json(written)
        check(values, METADATA)
        calibration, chosen = values["calibration"], values["thresholds"]
        if calibration is None and chosen is None:
            raise ValueError("it holds no calibration and no thresholds")
        known = {} if calibration is None else calibration
        return cls(
            images=(calibration or chosen)["images"],
            limits=tuple(limit["score"] for limit in chosen["limits"]) if chosen else (),
            asked_coverage=chosen["asked"]["coverage"] if chosen else None,
            asked_risk=chosen["asked"]["risk"] if chosen else None,
            accepted=chosen["coverage"] if chosen else None,
            quantiles={name: known[name] for name in ("uncertainty", "foreignness") if name in known},
            most={limit["score"]: limit["value"] for limit in chosen["limits"]} if chosen else {},
            classes=tuple(values.get("classes", ())),
        )

    def monitors(self, false_alarm: float, *, decided: bool, scored: Sequence[str]) -> list[Monitor]:
        """Those of a stream with decisions, if `decided`, and with these scores; none where nothing can be watched."""
        watched = [name for name in scored if name in {"uncertainty", *self.limits} and self._knows(name)]
        watched = watched if self.images >= LEAST else []
        rate = decided and self._watches_rate()
        each = false_alarm / max(len(watched) + rate, 1)
        return [
            *([self._acceptance(each)] if rate else []),
            *(self._uncertainty(name, each) for name in watched),
        ]

    def _knows(self, name: str) -> bool:
        return name in self.scores or name in self.quantiles

    def _watches_rate(self) -> bool:
        return len(self.limits) == 1 and (self.asked_coverage is not None or self.accepted is not None)

    def _acceptance(self, false_alarm: float) -> AcceptanceMonitor:
        if self.asked_coverage is not None:
            return AcceptanceMonitor(self.asked_coverage, self.images, false_alarm=false_alarm)
        assert self.accepted is not None
        rank = min(
            round(self.accepted * self.images) + 1, self.images
        )  # images below the calibration value of this rank
        return AcceptanceMonitor.at_rank(rank, self.images, choices=self.images, false_alarm=false_alarm)

    def _uncertainty(self, name: str, false_alarm: float) -> UncertaintyMonitor:
        if name in self.scores:
            return UncertaintyMonitor(self.scores[name], false_alarm=false_alarm, score=name)
        return UncertaintyMonitor.of_quantiles(self.quantiles[name], self.images, false_alarm=false_alarm, score=name)
