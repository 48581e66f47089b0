"""Scores on the calibration's scale, and histograms that are filled a batch at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest
from scipy.stats import percentileofscore

from dsui.serving.metrics import Tally
from dsui.serving.scale import Scale


def test_percentiles_are_those_of_the_calibration_images() -> None:
    generator = np.random.default_rng(0)
    calibration = generator.normal(size=5000)
    scale = Scale({"uncertainty": np.quantile(calibration, np.linspace(0, 1, 101))})
    values = generator.normal(size=200)
    found = scale.percentiles("uncertainty", values)
    assert found is not None
    expected = [percentileofscore(calibration, value) for value in values]
    np.testing.assert_allclose(found, expected, atol=0.5)  # between two quantiles a percent apart the scale is a line


def test_what_lies_outside_is_at_the_ends_and_nan_counts_as_worst() -> None:
    scale = Scale({"uncertainty": np.linspace(-1, 1, 101)})
    found = scale.percentiles("uncertainty", [-5.0, 5.0, np.inf, -np.inf, np.nan])
    assert found is not None
    assert found.tolist() == [0, 100, 100, 0, 100]
    assert scale.percentiles("foreignness", [0.0]) is None


@given(st.lists(st.floats(-5, 5), min_size=101, max_size=101), st.floats(-6, 6) | st.just(np.nan), st.data())
def test_one_value_is_placed_as_many_are(quantiles: list[float], value: float, data: st.DataObject) -> None:
    quantiles.sort()
    for each in (value, data.draw(st.sampled_from(quantiles))):
        scale = Scale({"uncertainty": quantiles})
        many, one = scale.percentiles("uncertainty", [each]), scale.percentile("uncertainty", each)
        assert many is not None
        assert one is not None
        assert abs(one - many[0]) < 1e-9  # the same line, computed in another order
    assert scale.percentile("foreignness", value) is None


@given(st.lists(st.lists(st.floats(-10, 110), min_size=1, max_size=20), max_size=5))
def test_a_tally_counts_as_prometheus_own_histogram_does(batches: list[list[float]]) -> None:
    bounds = (5.0, 50.0, 95.0)
    registry, own = CollectorRegistry(), CollectorRegistry()
    reference = Histogram("score", "text", ["model", "score"], buckets=bounds, registry=registry)
    tally = Tally("score", "text", bounds)
    own.register(tally)
    for batch in batches:
        tally.add("m", "s", np.array(batch))
        for value in batch:
            reference.labels("m", "s").observe(value)
    assert counts(own) == counts(registry)


def counts(registry: CollectorRegistry) -> dict[str, float]:
    lines = generate_latest(registry).decode().splitlines()
    found = (line.rsplit(" ", 1) for line in lines if line.startswith(("score_bucket", "score_count")))
    return {name.replace('.0"', '"'): float(value) for name, value in found}
