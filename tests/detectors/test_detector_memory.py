"""Many classes and wide features need no [N, C, M] tensor and no covariance for every class."""

from __future__ import annotations

import json
import subprocess
import sys

CLASSES, WIDTH, TRAIN, TEST = 500, 512, 1500, 1500
CUBE = TEST * CLASSES * WIDTH * 8
COVARIANCES = CLASSES * WIDTH * WIDTH * 8

PROGRAM = f"""
import json, resource, torch
from dsui.detectors.registry import build, names
from dsui.outputs import Outputs

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
weight = torch.randn({CLASSES}, {WIDTH}, generator=generator)
labels = torch.arange({TRAIN}) % {CLASSES}
features = (weight[labels] + torch.randn({TRAIN}, {WIDTH}, generator=generator)).relu()
train = Outputs(features, features @ weight.T, labels, weight=weight)
test = Outputs(features[:{TEST}] + 0.1, train.logits[:{TEST}], weight=weight)
small = Outputs(features[:60, :4], train.logits[:60, :2], torch.arange(60) % 2, weight=weight[:2, :4])
for name in names():  # libraries are loaded on first use
    build(name).fit(small).score(small)
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
peaks = {{}}
for name in sorted(names(), key=lambda name: name == "em-mixture"):
    assert bool(build(name).fit(train).score(test).isfinite().all())
    peaks[name] = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start)
print(json.dumps(peaks))
"""


def test_peak_memory_stays_far_below_the_tensors_that_must_not_exist() -> None:
    """The peak can only rise from one detector to the next; the mixtures, which hold most, come last."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    peaks = json.loads(run.stdout)
    limit = min(CUBE, COVARIANCES) / 4  # 260 MB
    mixtures = peaks.pop("em-mixture")
    assert max(peaks.values()) < limit, peaks
    assert mixtures < 2 * limit


NARROW = """
import resource, torch
from dsui.detectors.knn import KNN
from dsui.outputs import Outputs

torch.set_num_threads(1)
features = torch.randn(16384, 16, generator=torch.Generator().manual_seed(0))
outputs = Outputs(features, features[:, :2])
KNN().fit(outputs).score(outputs.select(torch.arange(10)))
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
KNN().fit(outputs).score(outputs)
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start))
"""


def test_narrow_features_do_not_make_the_distances_to_neighbours_large() -> None:
    run = subprocess.run([sys.executable, "-c", NARROW], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 16384**2 * 8 / 8  # all distances would be 2.1 GB
