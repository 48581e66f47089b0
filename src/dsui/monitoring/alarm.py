"""What the monitors have in common: wealth, an alarm that stays on, and how they are shown."""

from __future__ import annotations

import math

LARGEST_LOG = 700.0
"""The wealth is shown up to e^700; its logarithm goes on."""


class Alarm:
    """Is raised when wealth reaches 1 / `false_alarm`: with at most that chance, over any number of images, if nothing
    has changed. Once raised it stays."""

    def __init__(self, false_alarm: float) -> None:
        if not 0 < false_alarm < 1:
            raise ValueError(f"the chance of a false alarm must be between 0 and 1, as in 0.01, got {false_alarm}.")
        self.false_alarm = false_alarm
        self.log_value = 0.0
        """The logarithm of the wealth now."""
        self.highest = 0.0
        """The logarithm of the largest wealth so far."""
        self.observations = 0
        self.since: int | None = None
        """The number of images at which the alarm was raised, from 1."""

    def note(self, log_value: float) -> None:
        """The wealth after one more image."""
        self.observations += 1
        self.log_value = log_value
        self.highest = max(self.highest, log_value)
        if self.since is None and log_value >= -math.log(self.false_alarm):
            self.since = self.observations

    @property
    def alarm(self) -> bool:
        return self.since is not None

    @property
    def value(self) -> float:
        """The wealth now: 1 at the start, and 1 on average as long as nothing changes."""
        return math.exp(min(self.log_value, LARGEST_LOG))

    def chance(self) -> float:
        """At most the chance that the wealth would ever have come as high if nothing had changed."""
        return math.exp(-max(self.highest, 0.0))


def facts(alarm: Alarm) -> dict[str, object]:
    """What every monitor tells a program."""
    return {
        "observations": alarm.observations,
        "alarm": alarm.alarm,
        "since": alarm.since,
        "value": alarm.value,
        "log_value": alarm.log_value,
        "chance": alarm.chance(),
        "false_alarm": alarm.false_alarm,
    }


def count(number: int) -> str:
    """As in "1 image" and "1,200 images"."""
    return f"{number:,} image{'s' * (number != 1)}"
