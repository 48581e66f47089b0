"""Risk from later labels: false alarms as rare as stated, bounds that hold at every moment, against scipy."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import special

from dsui.monitoring import RiskMonitor


def test_false_alarms_just_at_the_promise_are_as_rare_as_stated() -> None:
    generator, streams = np.random.default_rng(0), 400
    alarms = sum(RiskMonitor(0.05, false_alarm=0.1).update(generator.random(400) < 0.05) for _ in range(streams))
    assert alarms / streams <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / streams)  # three deviations


def test_a_risk_that_doubles_after_a_thousand_images_is_noticed() -> None:
    generator = np.random.default_rng(1)
    monitor = RiskMonitor(0.05)
    assert not monitor.update(generator.random(1000) < 0.04)
    assert monitor.update(generator.random(600) < 0.12)
    assert monitor.since is not None
    assert monitor.since > 1000
    assert "5.0% promised" in monitor.sentence


def test_fewer_errors_are_no_alarm() -> None:
    assert not RiskMonitor(0.2).update(np.zeros(2000, bool))


@pytest.mark.parametrize(("errors", "images"), [(0, 1), (0, 300), (7, 300), (300, 300), (40, 90)])
def test_bounds_are_where_the_mixture_of_all_chances_is_twenty_times_likelier(errors: int, images: int) -> None:
    monitor = RiskMonitor(0.02)
    monitor.update(np.arange(images) < errors)
    low, high = monitor.interval()
    assert low <= errors / images <= high

    def advantage(p: float) -> float:
        """ln of the mixture's likelihood over that of p."""
        mixture = special.betaln(errors + 0.5, images - errors + 0.5) - special.betaln(0.5, 0.5)
        return float(mixture - special.xlogy(errors, p) - special.xlog1py(images - errors, -p))

    for bound in (low, high):
        assert bound in {0.0, 1.0} or advantage(bound) == pytest.approx(math.log(20), abs=1e-6)


def test_bounds_hold_at_every_moment_of_most_streams() -> None:
    generator, missed, streams = np.random.default_rng(2), 0, 100
    for _ in range(streams):
        monitor = RiskMonitor(0.5)
        for wrong in generator.random(150) < 0.1:
            monitor.update(wrong)
            low, high = monitor.interval()
            if not low <= 0.1 <= high:
                missed += 1
                break
    assert missed / streams <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / streams)


def test_without_labels_nothing_is_known() -> None:
    monitor = RiskMonitor(0.02)
    assert monitor.interval() == (0.0, 1.0)
    assert json.loads(json.dumps(monitor.to_mapping()))["rate"] is None
    with pytest.raises(ValueError, match="promised risk must be between 0 and 1"):
        RiskMonitor(1.0)
